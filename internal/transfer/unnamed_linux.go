package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// createUnnamed makes a file in dir that has no name. Some file systems cannot do
// that (NFS, overlayfs before Linux 6.3), and without /proc it could not be given
// a name later.
func createUnnamed(root *os.Root, dir string) (*os.File, error) {
	f, err := root.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(descriptorPath(f)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// linkUnnamed gives an unnamed file a name that must be free. Of the name only the
// directory is resolved, inside the root; a link under the name itself counts as
// taken.
func linkUnnamed(root *os.Root, f *os.File, name string) error {
	dir, err := root.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	// AT_EMPTY_PATH would need a capability on most kernels.
	err = unix.Linkat(unix.AT_FDCWD, descriptorPath(f), int(dir.Fd()), filepath.Base(name), unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.LinkError{Op: "linkat", Old: f.Name(), New: name, Err: err}
	}
	return nil
}

func setUnnamedTime(f *os.File, mtime time.Time) error {
	return os.Chtimes(descriptorPath(f), mtime, mtime)
}

func descriptorPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
