//go:build unix

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ownDirectory makes a directory unless it exists, and says why it is not private.
func ownDirectory(dir string) error {
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return err
	}
	// In a directory that others may write to, only the sticky bit keeps them from
	// renaming ours and putting their own in its place.
	sticky := parent.Mode()&fs.ModeSticky != 0 && ownedByUs(parent.Sys().(*syscall.Stat_t))
	if who := writableByOthers(filepath.Dir(dir)); who != "" && !sticky {
		return fmt.Errorf("%s is not safe, because %s %s", dir, filepath.Dir(dir), who)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Not Stat: a link would be somebody's trap.
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others", dir)
	case syscall.Access(dir, 0o3) != nil:
		return fmt.Errorf("%s is not writable", dir)
	}
	return nil
}

// lockDirectory takes a lock that ends with this process at the latest.
func lockDirectory(path string) (unlock func(), ok bool) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = dir.Close()
		return nil, false
	}
	return func() { _ = dir.Close() }, true
}
