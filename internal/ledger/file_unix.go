//go:build !windows

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// replaceFile makes path hold data, wholly or not at all, and returns once both the content and the directory entry would
// survive a power cut. The temporary file is path's name with a leading '.' and trailing digits; see parseTemp.
func replaceFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	// WithTempDir keeps renameio from probing $TMPDIR, which may be another file system.
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some network and FUSE file systems cannot sync a directory; there the rename is as durable as it gets.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// readFile is os.ReadFile with a limit, into buf where it fits. It speaks to the kernel itself because os.File needs twice
// the time for a small file, and ls reads one per sandbox. O_NONBLOCK keeps a stray FIFO from blocking it.
func readFile(path string, buf []byte) ([]byte, error) {
	fd, err := uninterrupted(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf = buf[:0]
	for {
		if buf, err = growForRead(buf); err != nil {
			return nil, err
		}
		n, err := uninterrupted(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
	}
}

func uninterrupted(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
