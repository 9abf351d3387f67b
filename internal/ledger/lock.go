package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
)

// lockPoll is how often a waiting process looks again. The usual lock is held for a few milliseconds.
const lockPoll = 10 * time.Millisecond

// Keys of locks: a record is locked by its id, a name by nameKey, the owner file by its own name. A process that needs
// several takes the record's before the name's; Begin alone starts with the name, and then locks an id nobody knows yet.
func nameKey(name string) string { return "name-" + escapeName(name) }

// lock waits for the lock of key until ctx ends.
func (l *Ledger) lock(ctx context.Context, key string) (release func(), err error) {
	path := filepath.Join(l.dir, locksDir, key)
	for {
		f := flock.New(path)
		if _, err := f.TryLockContext(ctx, lockPoll); err != nil {
			return nil, l.lockError(ctx, key, err)
		}
		if isCurrent(f) {
			return func() { unlock(f) }, nil
		}
		_ = f.Unlock()
	}
}

// tryLock is lock without waiting; ok says whether it was free.
func (l *Ledger) tryLock(key string) (release func(), ok bool, err error) {
	f := flock.New(filepath.Join(l.dir, locksDir, key))
	if ok, err = f.TryLock(); err != nil {
		return nil, false, l.dirError("write to", err)
	}
	if ok && !isCurrent(f) {
		_ = f.Unlock()
		ok = false
	}
	if !ok {
		return nil, false, nil
	}
	return func() { unlock(f) }, true, nil
}

// whenFree runs fn under the lock of key, or not at all if somebody holds it.
func (l *Ledger) whenFree(key string, fn func() error) error {
	release, ok, err := l.tryLock(key)
	if err != nil || !ok {
		return err
	}
	defer release()
	return fn()
}

func (l *Ledger) lockError(ctx context.Context, key string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("gave up waiting for another process that holds the ledger lock of %s: %w", key, ctx.Err())
	}
	if errors.Is(err, fs.ErrNotExist) && l.unwritable != nil {
		return l.unwritable
	}
	return l.dirError("write to", err)
}

// isCurrent tells whether what f has locked is still the file that its path names. The holder before us may have removed it
// after we opened it, and then a third process can lock a new file of that name at the same time.
func isCurrent(f *flock.Flock) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Path())
	return err == nil && os.SameFile(held, named)
}

// unlock removes the lock file, so that none pile up, and lets go. Removing first is what makes it safe: whoever locks the
// removed file afterwards finds with isCurrent that it is not the one. Windows refuses to remove an open file, so there the
// order is turned round, and the removal fails harmlessly if somebody else has opened the file.
func unlock(f *flock.Flock) {
	// Neither failure can be acted on: the kernel drops the lock with the process, and Prune removes the file.
	if runtime.GOOS == "windows" {
		_ = f.Unlock()
		_ = os.Remove(f.Path())
		return
	}
	_ = os.Remove(f.Path())
	_ = f.Unlock()
}
