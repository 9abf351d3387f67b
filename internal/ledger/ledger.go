// Package ledger remembers what this user has created or tried to create, so that nothing leaks when a process, a driver
// or the machine dies half way.
//
// Everything lives in small files under one state directory, written by temp + fsync + rename and guarded by advisory
// locks; there is no daemon. Hundreds of processes may use one directory at once, and every file is readable with cat:
//
//	owner               the random id of this state directory
//	records/<id>.json   one sandbox that is wanted or exists
//	gone/<id>.json      one tombstone, kept for TombstoneTTL
//	names/<name>.id     the id of the last sandbox that had this name
//	locks/<key>         held while somebody writes; absent otherwise
//
// A record goes intent -> created -> ready -> gone and never back. The file in records/ or gone/ is the truth; names/ is
// an index that may dangle after a crash and is repaired by Prune.
package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TombstoneTTL is how long a gone record is kept, so that a late user of it hears "gone since ..." and not "unknown".
const TombstoneTTL = 24 * time.Hour

const (
	recordsDir = "records"
	goneDir    = "gone"
	namesDir   = "names"
	locksDir   = "locks"
	ownerFile  = "owner"
)

// subDirs is in the order of creation: repairing names needs the others.
func subDirs() []string { return []string{locksDir, recordsDir, goneDir, namesDir} }

// Ledger is an open state directory. It holds no descriptor and no lock between calls, needs no Close, and may be used
// by several goroutines.
type Ledger struct {
	dir   string
	owner string
	// unwritable is why the layout could not be completed at Open. Reading works all the same; Begin reports it.
	unwritable error
}

// Open opens the state directory dir and creates it with mode 0700 when it is missing.
//
// A directory that exists and cannot be written (permissions, read-only or full disk) still opens, so that sandboxes can
// be listed; Begin and the other changes then fail. A directory that is not one, that belongs to somebody else or that
// others can write to is refused. Errors are *StateDirError.
func Open(dir string) (*Ledger, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, &StateDirError{Dir: dir, Op: "open", Err: err}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &StateDirError{Dir: dir, Op: "create", Err: err}
	}
	if err := checkPrivate(dir); err != nil {
		return nil, &StateDirError{Dir: dir, Op: "use", Err: err}
	}
	l := &Ledger{dir: dir}
	if l.owner, err = l.readOwner(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &StateDirError{Dir: dir, Op: "read the owner file of", Err: err}
	}
	if l.owner == "" || l.incomplete() {
		l.unwritable = l.setUp()
	}
	return l, nil
}

// Owner is the random id of this state directory: 20 lower-case base32 characters, the same in every process that opens
// it. It is empty only when the directory never held a sandbox and cannot be written.
func (l *Ledger) Owner() string { return l.owner }

func (l *Ledger) incomplete() bool {
	for _, sub := range subDirs() {
		if _, err := os.Lstat(filepath.Join(l.dir, sub)); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// setUp makes what is missing of the layout: all of it in a fresh directory, or what somebody has deleted.
func (l *Ledger) setUp() error {
	// The work under this lock is a few milliseconds; the deadline only guards against a stuck holder.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, sub := range subDirs() {
		switch err := os.Mkdir(filepath.Join(l.dir, sub), 0o700); {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			return l.dirError("write to", err)
		}
		if sub == namesDir {
			if err := l.reindex(ctx); err != nil {
				return err
			}
		}
	}
	release, err := l.lock(ctx, ownerFile)
	if err != nil {
		return err
	}
	defer release()
	switch l.owner, err = l.readOwner(); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return l.dirError("read the owner file of", err)
	}
	owner := strings.ToLower(rand.Text()[:ownerLength])
	if err := replaceFile(filepath.Join(l.dir, ownerFile), []byte(owner+"\n")); err != nil {
		return l.dirError("write to", err)
	}
	l.owner = owner
	// The directory itself may be new. Its parent may also be one that we cannot open, which is no reason to stop.
	_ = syncDir(filepath.Dir(l.dir))
	return nil
}

// reindex restores the names of the records that exist.
func (l *Ledger) reindex(ctx context.Context) error {
	records, _, err := l.List(ctx, Filter{})
	if err != nil {
		return err
	}
	for _, r := range records {
		// Two records of one name are reported by Prune.
		if _, err := l.repairIndex(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) readOwner() (string, error) {
	data, err := os.ReadFile(filepath.Join(l.dir, ownerFile))
	if err != nil {
		return "", err
	}
	owner := strings.TrimSuffix(string(data), "\n")
	if len(owner) != ownerLength || !isBase32(owner) {
		return "", fmt.Errorf("it does not hold %d base32 characters", ownerLength)
	}
	return owner, nil
}

func (l *Ledger) recordPath(id string) string { return filepath.Join(l.dir, recordsDir, id+recordExt) }
func (l *Ledger) gonePath(id string) string   { return filepath.Join(l.dir, goneDir, id+recordExt) }

func (l *Ledger) dirError(op string, err error) error {
	return &StateDirError{Dir: l.dir, Op: op, Err: err}
}
