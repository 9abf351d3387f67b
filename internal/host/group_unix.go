//go:build unix

package host

import (
	"os"
	"syscall"
)

// group is a driver's process group.
type group struct{ id int }

func newGroup(process *os.Process) group { return group{process.Pid} }

func (g group) kill() { _ = syscall.Kill(-g.id, syscall.SIGKILL) }

func (g group) release() {}

func terminate(process *os.Process) bool { return process.Signal(syscall.SIGTERM) == nil }
