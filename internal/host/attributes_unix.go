//go:build unix && !linux

package host

import "syscall"

// attributes puts a driver into a process group of its own, so that a Ctrl-C
// reaches only the host, which then decides what to end. That the driver ends with
// its host is the SDK's doing here: it sees the connection close.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
