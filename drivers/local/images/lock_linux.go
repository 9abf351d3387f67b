package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waitForLock opens a file, made where it is missing, and waits until nobody else has
// it locked. Closing the file lets go of the lock, as does the end of the process.
func waitForLock(ctx context.Context, name string, waiting func()) (*os.File, error) {
	const pollEvery = 10 * time.Millisecond
	for told := false; ; {
		file, err := tryLock(name, os.O_CREATE|os.O_RDWR)
		if file != nil || err != nil {
			return file, err
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// tryLock returns nothing when somebody else holds the lock.
func tryLock(name string, flags int) (*os.File, error) {
	file, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && stillNamed(file, name) {
		return file, nil
	}
	// Else it is locked, or was renamed or removed between the two calls.
	_ = file.Close()
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return nil, nil
}

func stillNamed(file *os.File, name string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(name)
	return err == nil && os.SameFile(opened, named)
}
