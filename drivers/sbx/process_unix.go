//go:build unix

package sbx

import (
	"os/exec"
	"syscall"
)

// detach gives a process a session of its own, without a terminal, and makes its
// context end all of it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
