package sbx

import (
	"os/exec"
	"syscall"
)

// detach starts a process without a console, so that it has nothing to ask on.
func detach(cmd *exec.Cmd) {
	const createNoWindow = 0x08000000
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: createNoWindow}
}
