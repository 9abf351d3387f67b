package host

import "syscall"

// attributes puts a driver into a process group of its own, so that a Ctrl-C
// reaches only the host, which then decides what to end. When the host is killed,
// the driver gets a SIGTERM, on which the SDK cancels calls under way, cleans up and
// removes the socket; a SIGKILL would leave both.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
