package local

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/drivers/local/network"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// systemDirectories are what the guest sees of the host: programs and libraries. On
// most hosts all but the first are symbolic links into it.
var systemDirectories = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// sharedEtc are directories below /etc that hold nothing of the host's own: what the
// certificate tools generate and what chooses between installed programs.
var sharedEtc = []string{"etc/alternatives", "etc/ssl/certs", "etc/pki/tls/certs", "etc/pki/ca-trust/extracted"}

// copiedEtc are single files of the same kind. They are copied since a bind mount each
// would cost more.
var copiedEtc = []string{
	"etc/ld.so.cache", "etc/ld.so.conf", "etc/localtime", "etc/os-release", "etc/mime.types", "etc/services",
	"etc/protocols", "etc/magic", "etc/locale.alias", "etc/ssl/openssl.cnf", "etc/ssl/cert.pem",
}

// largestEtcFile bounds what is copied for each sandbox, in bytes.
const largestEtcFile = 1 << 20

// writtenEtc is the rest of /etc. It has no name, account, address or key of the host.
var writtenEtc = map[string]string{
	"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n" +
		"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n",
	"etc/group":         "root:x:0:\ndaemon:x:1:\ntty:x:5:\nusers:x:100:\nnogroup:x:65534:\n",
	"etc/hosts":         "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
	"etc/hostname":      "sandbox\n",
	"etc/resolv.conf":   "nameserver " + network.GatewayIPv4.String() + "\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
	"etc/shells":        "/bin/sh\n/bin/bash\n",
}

// buildHostRoot makes a root out of the host's programs, and returns what has to be
// mounted on it.
func buildHostRoot(root *os.Root, workdir string) ([]bind, error) {
	binds, err := systemBinds(root)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"etc/ssl", "proc", "dev", "sys", "home", "mnt", "opt", "srv", "run/lock", "var/cache", "var/lib", "var/log"} {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	for dir, mode := range map[string]fs.FileMode{"root": 0o700, "tmp": 0o777 | fs.ModeSticky, "var/tmp": 0o777 | fs.ModeSticky} {
		if err := makeDirectory(root, dir, mode); err != nil {
			return nil, err
		}
	}
	if err := root.Symlink("../run", "var/run"); err != nil {
		return nil, err
	}
	shared, err := buildEtc(root)
	if err != nil {
		return nil, err
	}
	if !inSystemDirectory(workdir) {
		if err := root.MkdirAll(strings.TrimPrefix(path.Clean(workdir), "/")+"/.", 0o755); err != nil {
			return nil, err
		}
	}
	return append(binds, shared...), makeMountPoint(root, guest.Path)
}

// makeDirectory sets the mode whatever the process's umask is.
func makeDirectory(root *os.Root, dir string, mode fs.FileMode) error {
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return root.Chmod(dir, mode)
}

// makeMountPoint makes the empty file that a file is mounted on.
func makeMountPoint(root *os.Root, file string) error {
	file = strings.TrimPrefix(file, "/")
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	return root.WriteFile(file, nil, 0o755)
}

func systemBinds(root *os.Root) ([]bind, error) {
	var binds []bind
	for _, dir := range systemDirectories {
		info, err := os.Lstat("/" + dir)
		switch {
		case err != nil:
			continue
		case info.IsDir():
			binds = append(binds, bind{source: "/" + dir, destination: "/" + dir})
			err = root.Mkdir(dir, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			if target, err = os.Readlink("/" + dir); err == nil {
				err = root.Symlink(target, dir)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return binds, nil
}

func buildEtc(root *os.Root) ([]bind, error) {
	for name, content := range writtenEtc {
		if err := root.WriteFile(name, []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	for _, name := range copiedEtc {
		if content := publicFile("/" + name); content != nil {
			if err := root.WriteFile(name, content, 0o644); err != nil {
				return nil, err
			}
		}
	}
	var binds []bind
	for _, dir := range sharedEtc {
		if info, err := os.Stat("/" + dir); err != nil || !info.IsDir() {
			continue
		}
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		binds = append(binds, bind{source: "/" + dir, destination: "/" + dir})
	}
	return binds, nil
}

// publicFile returns the content of a small file that everybody may read, or nothing.
func publicFile(name string) []byte {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 || info.Size() > largestEtcFile {
		return nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return content
}

// inSystemDirectory reports whether a path of the guest is in a mounted directory.
func inSystemDirectory(workdir string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(workdir), "/"), "/")
	return slices.Contains(systemDirectories, first) || slices.Contains([]string{"proc", "sys", "dev"}, first)
}

// checkWorkdir refuses working directories that the sandbox would not have. Where the
// root has them made, any will do.
func checkWorkdir(spec *plugin.SandboxSpec) error {
	workdir := spec.Workdir
	if workdir == "" {
		return nil
	}
	if !path.IsAbs(workdir) || strings.ContainsRune(workdir, 0) {
		return plugin.Errorf(plugin.KindInvalid, "the working directory %q is not an absolute path", workdir)
	}
	if spec.Image != "" {
		// Its first process says what is wrong with others.
		return nil
	}
	clean := path.Clean(workdir)
	for _, file := range append(slices.Clone(copiedEtc), guest.Path[1:]) {
		if clean == "/"+file || strings.HasPrefix(clean, "/"+file+"/") {
			return plugin.Errorf(plugin.KindInvalid, "the working directory %q is a file in the sandbox", workdir)
		}
	}
	for file := range writtenEtc {
		if clean == "/"+file || strings.HasPrefix(clean, "/"+file+"/") {
			return plugin.Errorf(plugin.KindInvalid, "the working directory %q is a file in the sandbox", workdir)
		}
	}
	if !inSystemDirectory(clean) {
		return nil
	}
	info, err := os.Stat(clean)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && !info.IsDir()) {
		return plugin.Errorf(plugin.KindInvalid, "the working directory %q is in a system directory of this machine and does not exist there", workdir).
			WithHint("name a directory outside of /usr, /bin, /sbin, /lib, /proc, /sys and /dev; it is made")
	}
	return err
}
