package local

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
)

// guestPath is the PATH of a command that is given none.
const guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// writeBundle makes what runsc starts a sandbox from: the lowest layer of its root and
// the OCI configuration.
func (d *Driver) writeBundle(fresh sandbox, created *record) error {
	var binds []bind
	if created.Image == nil {
		root, err := os.OpenRoot(fresh.rootfs())
		if err != nil {
			return err
		}
		defer root.Close()
		if binds, err = buildHostRoot(root, created.workdir()); err != nil {
			return err
		}
	}
	binds = append(binds, bind{source: d.helper, destination: guest.Path, readOnly: true})
	config := configuration(created, binds)
	if created.Image != nil {
		config.Annotations = imageAnnotations(fresh)
		config.Process.Args = append(config.Process.Args, created.workdir(), created.user())
	}
	if created.Spec.DiskBytes != 0 {
		limitDisk(config, created.Spec.DiskBytes)
	}
	if created.Spec.PIDs != 0 {
		countProcesses(config)
	}
	content, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(fresh.dir, "config.json"), content, 0o600)
}

// bind shows a path of the host in the guest. One that is not read-only has a writable
// layer of the guest's own over it; the host's files are never written to.
type bind struct {
	source, destination string
	readOnly            bool
}

func configuration(created *record, binds []bind) *specs.Spec {
	capabilities := guestCapabilities()
	config := &specs.Spec{
		Version: specs.Version,
		// The guest is told nothing about the host's name.
		Hostname: "sandbox",
		Root:     &specs.Root{Path: filepath.Base(sandbox{}.rootfs())},
		Process: &specs.Process{
			Args: []string{guest.Path, guest.ModeInit},
			Cwd:  "/",
			Env:  []string{"PATH=" + guestPath},
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777", "nosuid", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
		}},
	}
	for _, each := range binds {
		access := "rw"
		if each.readOnly {
			access = "ro"
		}
		config.Mounts = append(config.Mounts, specs.Mount{
			Destination: each.destination, Type: "bind", Source: each.source, Options: []string{"rbind", access},
		})
	}
	return config
}

// guestCapabilities are root's in the guest: what docker gives, without raw sockets and
// devices, and with ptrace, which gVisor confines to the sandbox.
func guestCapabilities() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
		"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
	}
}
