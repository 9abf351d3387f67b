//go:build linux

package guest

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// buildRoot mounts a fresh root over dir (host programs read-only, everything else in memory) and moves into it.
func buildRoot(dir, self string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("detach the mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size=2g"); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	if err := programs(dir); err != nil {
		return err
	}
	if err := skeleton(dir); err != nil {
		return err
	}
	if err := devices(filepath.Join(dir, "dev")); err != nil {
		return err
	}
	target := filepath.Join(dir, "opt/opensandbox/execd")
	if err := os.WriteFile(target, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(self, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("provide execd: %w", err)
	}
	if err := unix.Mount("proc", filepath.Join(dir, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	return enter(dir)
}

// programs shows the host's programs read-only, as links where the host has links.
func programs(dir string) error {
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64"} {
		host := "/" + name
		info, err := os.Lstat(host)
		if err != nil {
			continue
		}
		target := filepath.Join(dir, name)
		if info.Mode()&os.ModeSymlink != 0 {
			link, err := os.Readlink(host)
			if err != nil {
				return err
			}
			if err := os.Symlink(link, target); err != nil {
				return err
			}
			continue
		}
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(host, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("provide %s: %w", host, err)
		}
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", host, err)
		}
	}
	return nil
}

func skeleton(dir string) error {
	for name, mode := range map[string]os.FileMode{
		"etc": 0o755, "proc": 0o555, "sys": 0o555, "dev": 0o755, "run": 0o755, "home": 0o755, "root": 0o700,
		"var": 0o755, "var/tmp": 0o777 | os.ModeSticky, "tmp": 0o777 | os.ModeSticky, "workspace": 0o755,
		"opt": 0o755, "opt/opensandbox": 0o755, "old": 0o700,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"etc/passwd":   "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":    "root:x:0:\nnogroup:x:65534:\n",
		"etc/hosts":    "127.0.0.1 localhost\n127.0.0.1 " + hostname + "\n",
		"etc/hostname": hostname + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if alt, err := os.Stat("/etc/alternatives"); err == nil && alt.IsDir() {
		target := filepath.Join(dir, "etc/alternatives")
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		return unix.Mount("/etc/alternatives", target, "", unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return nil
}

func devices(dev string) error {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		target := filepath.Join(dev, name)
		if err := os.WriteFile(target, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("provide /dev/%s: %w", name, err)
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", filepath.Join(dev, "pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount the pseudo terminals: %w", err)
	}
	if err := unix.Mount("shm", filepath.Join(dev, "shm"), "tmpfs", 0, "mode=1777,size=64m"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	for link, to := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, filepath.Join(dev, link)); err != nil {
			return err
		}
	}
	return nil
}

// enter makes dir the root and drops the old one.
func enter(dir string) error {
	if err := unix.PivotRoot(dir, filepath.Join(dir, "old")); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop the host's root: %w", err)
	}
	return os.Remove("/old")
}
