package local

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// useFile is locked, shared, by every call that uses a sandbox with an idle timeout, and
// changed at its end: the lock says that the sandbox is in use, also when a driver was
// killed, and the time of the change since when it is not.
func (s sandbox) useFile() string { return filepath.Join(s.dir, "use") }

// use finds a live sandbox and keeps it from being taken for an idle one.
func (d *Driver) use(ctx context.Context, ref plugin.Ref) (found sandbox, known *record, done func(), err error) {
	found, known, err = d.find(ref)
	if err != nil || known.Spec.IdleTimeout == 0 {
		return found, known, func() {}, err
	}
	file, err := os.OpenFile(found.useFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		if _, _, gone := d.find(ref); gone != nil {
			err = gone
		}
		return found, known, nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK {
			break
		}
		// The keeper looks, or removes the sandbox.
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	if err == nil {
		found, known, err = d.find(ref)
	}
	if err != nil {
		_ = file.Close()
		return found, known, nil, err
	}
	return found, known, func() {
		now := time.Now()
		_ = os.Chtimes(found.useFile(), now, now)
		_ = file.Close()
	}, nil
}

// idleFor returns for how long nobody has used the sandbox, and until unlock is called
// nobody will; unlock is nil while somebody does.
func (s sandbox) idleFor() (idle time.Duration, unlock func(), err error) {
	file, err := os.OpenFile(s.useFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return 0, nil, file.Close()
	}
	info, statErr := file.Stat()
	if err == nil {
		err = statErr
	}
	if err != nil {
		_ = file.Close()
		return 0, nil, err
	}
	return time.Since(info.ModTime()), func() { _ = file.Close() }, nil
}
