package sbxdouble

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// sharedDirs are the host's program directories, which a guest sees read-only.
var sharedDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ssl"}

var guestFiles = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/bash\n",
	"/etc/group":         "root:x:0:\nnogroup:x:65534:\nagent:x:1000:\n",
	"/etc/hosts":         "127.0.0.1 localhost\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	"/etc/resolv.conf":   "",
	"/etc/os-release":    "NAME=\"sbx double\"\nID=sbxdouble\n",
}

// enterRoot gives the machine a root directory of its own and makes it "/".
func enterRoot(dir string, config *Config, box *sandbox) error {
	root := filepath.Join(dir, "rootfs")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("sbxdouble: private mounts: %w", err)
	}
	if err := prepareRoot(root); err != nil {
		return err
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("sbxdouble: bind root: %w", err)
	}
	for _, shared := range sharedDirs {
		if err := shareDir(root, shared); err != nil {
			return err
		}
	}
	if err := mountKernelDirs(root); err != nil {
		return err
	}
	if config.DiskBytes > 0 {
		if err := unix.Mount("tmpfs", filepath.Join(root, "tmp"), "tmpfs", 0, fmt.Sprintf("size=%d,mode=1777", config.DiskBytes)); err != nil {
			return fmt.Errorf("sbxdouble: small disk: %w", err)
		}
	}
	if !box.Unmounted {
		for _, workspace := range box.Workspaces {
			if err := bind(workspace, root+workspace); err != nil {
				return err
			}
			// The real thing maps users: the guest's may write what the host's may.
			if err := os.Chmod(workspace, 0o777); err != nil {
				return err
			}
		}
	}
	if err := unix.Sethostname([]byte(box.Name)); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("sbxdouble: pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("sbxdouble: leave the host's root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return newBootID()
}

func prepareRoot(root string) error {
	for _, dir := range []string{"proc", "dev", "run", "root", "etc", "opt", "mnt", "srv", "var/lib", "var/log", "var/cache", "home/agent/workspace"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		path := filepath.Join(root, dir)
		if err := os.MkdirAll(path, 0o777); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	for path, text := range guestFiles {
		if _, err := os.Stat(root + path); err == nil {
			continue
		}
		if err := os.WriteFile(root+path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if text, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		if err := os.WriteFile(root+"/etc/ld.so.cache", text, 0o644); err != nil {
			return err
		}
	}
	if mappedUsers() {
		for _, dir := range []string{"/home/agent", "/home/agent/workspace"} {
			if err := os.Chown(root+dir, 1000, 1000); err != nil {
				return err
			}
		}
	}
	return nil
}

// shareDir shows a host directory read-only; where the host has a symbolic link the guest gets the same link.
func shareDir(root, dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil // not every host has every one of them
	}
	target := root + dir
	if info.Mode()&os.ModeSymlink != 0 {
		link, err := os.Readlink(dir)
		if err != nil {
			return err
		}
		if err := os.Symlink(link, target); err != nil && !os.IsExist(err) {
			return err
		}
		return nil
	}
	if err := bind(dir, target); err != nil {
		return err
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|lockedFlags(target), ""); err != nil {
		return fmt.Errorf("sbxdouble: make %s read-only: %w", dir, err)
	}
	return nil
}

// lockedFlags are the mount flags that an unprivileged namespace may not drop.
func lockedFlags(path string) uintptr {
	var stat unix.Statfs_t
	if unix.Statfs(path, &stat) != nil {
		return 0
	}
	return uintptr(stat.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
}

func bind(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else {
		var file *os.File
		if file, err = os.OpenFile(to, os.O_CREATE, 0o644); err == nil {
			file.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("sbxdouble: bind %s: %w", from, err)
	}
	return nil
}

func mountKernelDirs(root string) error {
	if err := unix.Mount("proc", root+"/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("sbxdouble: mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", root+"/dev", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("sbxdouble: mount /dev: %w", err)
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind("/dev/"+device, root+"/dev/"+device); err != nil {
			return err
		}
	}
	for _, dir := range []string{"pts", "shm"} {
		if err := os.MkdirAll(root+"/dev/"+dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", root+"/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("sbxdouble: mount /dev/pts: %w", err)
	}
	if err := unix.Mount("tmpfs", root+"/dev/shm", "tmpfs", 0, "mode=1777"); err != nil {
		return fmt.Errorf("sbxdouble: mount /dev/shm: %w", err)
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, root+"/dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

// newBootID makes every start of the machine look like the boot of a kernel.
func newBootID() error {
	const path = "/proc/sys/kernel/random/boot_id"
	file := "/dev/shm/.boot_id"
	if err := os.WriteFile(file, []byte(uuid.NewString()+"\n"), 0o444); err != nil {
		return err
	}
	if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("sbxdouble: boot id: %w", err)
	}
	return os.Remove(file)
}

// loopbackUp brings up the machine's only network interface.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
