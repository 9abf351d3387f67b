//go:build linux

package modaldouble

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// guestPath is the PATH that common Linux images set.
const guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// hostRoot is where the host's root is until the guest is ready.
const hostRoot = "/.host"

// buildRoot turns root into the root file system of the calling thread, in a
// mount namespace of its own: the host's programs read-only, everything else
// empty and writable.
func buildRoot(root string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the root: %w", err)
	}
	if err := bindPrograms(root); err != nil {
		return err
	}
	if err := copyEtc(root); err != nil {
		return err
	}
	if err := makeDev(root); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o555); err != nil {
		return err
	}
	return pivot(root)
}

func bindPrograms(root string) error {
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		target := filepath.Join(root, dir)
		if info.Mode()&os.ModeSymlink != 0 {
			link, err := os.Readlink(dir)
			if err != nil {
				return err
			}
			if err := os.Symlink(link, target); err != nil {
				return err
			}
			continue
		}
		if err := bindReadOnly(dir, target); err != nil {
			return err
		}
	}
	return nil
}

func bindReadOnly(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	// What restricts the source already must be kept, or an ordinary user's
	// namespace may not change the mount at all.
	var info unix.Statfs_t
	if err := unix.Statfs(target, &info); err != nil {
		return fmt.Errorf("look at %s: %w", source, err)
	}
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME
	flags := uintptr(info.Flags)&kept | unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY
	if info.Flags&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	if err := unix.Mount("", target, "", flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", source, err)
	}
	return nil
}

// copyEtc gives the guest what programs need to start and nothing of the host's
// own settings.
func copyEtc(root string) error {
	etc := filepath.Join(root, "etc")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"passwd", "group", "nsswitch.conf", "ld.so.cache", "hosts", "resolv.conf"} {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(etc, name), content, 0o644); err != nil {
			return err
		}
	}
	if _, err := os.Stat("/etc/alternatives"); err != nil {
		return nil
	}
	return bindReadOnly("/etc/alternatives", filepath.Join(etc, "alternatives"))
}

func makeDev(root string) error {
	dev := filepath.Join(root, "dev")
	if err := os.MkdirAll(filepath.Join(dev, "pts"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		target := filepath.Join(dev, name)
		if err := os.WriteFile(target, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount(filepath.Join("/dev", name), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /dev/%s: %w", name, err)
		}
	}
	links := map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", filepath.Join(dev, "pts"), "devpts", 0, "newinstance,ptmxmode=0666"); err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	return nil
}

// pivot makes root the root, and leaves the old one at hostRoot for the init to
// detach.
func pivot(root string) error {
	old := filepath.Join(root, hostRoot)
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("pivot to the guest's root: %w", err)
	}
	return unix.Chdir("/")
}
