package local

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// lock waits for the exclusive right to make or remove a sandbox. The lock is on the
// directory itself and goes with it and with the process that holds it. It fails with
// fs.ErrNotExist when there is no sandbox, also when it was removed meanwhile.
func (s sandbox) lock(ctx context.Context) (unlock func(), err error) {
	const pollEvery = 10 * time.Millisecond
	for {
		unlock, err := s.tryLock()
		if unlock != nil || err != nil {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, plugin.Errorf(plugin.KindConflict, "the sandbox %s is being made or removed by another process", s.id)
		case <-time.After(pollEvery):
		}
	}
}

// tryLock returns neither function nor error when somebody else holds the lock.
func (s sandbox) tryLock() (unlock func(), err error) {
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return nil, dir.Close()
	}
	if err == nil {
		// Who held the lock before may have removed the directory.
		_, err = os.Stat(s.dir)
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return func() { _ = dir.Close() }, nil
}
