//go:build unix

package faultdriver

import (
	"os/exec"
	"syscall"
)

// killTree lets the end of the command's context end all that it started.
func killTree(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
