package local

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// countProcesses prepares a sandbox whose processes are counted, by gVisor itself: in
// the host's own count would be gVisor's threads, which must not fail.
//
// gVisor counts in control groups of its own, which the sandbox sees until the limit is
// set and never again: root of the guest could mount them anew in a user namespace, so
// nothing can be mounted in such a sandbox.
func countProcesses(config *specs.Spec) {
	config.Mounts = append(config.Mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"})
	// The helper, whose threads count, is not to have more on a larger machine.
	config.Process.Env = append(config.Process.Env, "GOMAXPROCS=2")
	config.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Syscalls: []specs.LinuxSyscall{{
			Names:  []string{"mount", "fsopen", "fspick", "fsconfig", "fsmount", "open_tree", "open_tree_attr", "move_mount", "mount_setattr"},
			Action: specs.ActErrno,
		}},
	}
}

// countingOptions are runsc's for it.
func countingOptions() []string {
	return []string{"--in-sandbox-cgroup=v2", "--oci-seccomp"}
}

// limitProcesses sets the limit of a sandbox that runs nothing yet. The helper does it
// in the guest, since gVisor's own call for it takes the sandbox down.
func (s sandbox) limitProcesses(ctx context.Context, limit uint32) error {
	cmd := s.runsc(nil, "exec", "-cap=CAP_SYS_ADMIN", s.id, guest.Path, guest.ModeLimit, s.id, strconv.FormatUint(uint64(limit), 10))
	complaint := &limitedBuffer{left: complaintLimit}
	cmd.Stderr, cmd.WaitDelay = complaint, time.Second
	if err := runUntil(ctx, cmd); err != nil {
		return plugin.Errorf(plugin.KindInternal, "the sandbox's processes cannot be limited: %w", fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String())))
	}
	return nil
}

// runUntil runs a command, and kills it when the context ends.
func runUntil(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	return cmd.Wait()
}

// refusedProcess is the end of what runsc says when there is not even a process for the
// helper: a guest has used up what is reserved, which takes many users.
const refusedProcess = "in sandbox: try again"

const (
	// reservedProcesses are kept for the helper: its first process and the calls that
	// end what the guest has too much of.
	reservedProcesses = 16
	// fewestProcesses leaves as many for commands.
	fewestProcesses = 2 * reservedProcesses
)

// commandProcesses returns how many processes and threads one user's commands may have
// in a sandbox with a limit.
func commandProcesses(limit uint32) uint64 {
	if limit == 0 {
		return 0
	}
	return uint64(limit) - reservedProcesses
}
