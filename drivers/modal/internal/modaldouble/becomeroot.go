//go:build linux

package modaldouble

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// BecomeRoot makes the program root of a user namespace where it is not root
// already, which is enough for guests with a root directory of their own. It runs
// the program again in there and exits with its status, so it is to be called
// before anything else.
func BecomeRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGTERM,
	}
	err := again.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("the double needs root or user namespaces: %w", err)
	}
	os.Exit(again.ProcessState.ExitCode())
	return nil
}

// inUserNamespace says that the program is root in its own eyes only.
func inUserNamespace() bool {
	const everybody = "4294967295"
	mapped, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && !strings.Contains(string(mapped), everybody)
}
