package guest

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// groups is where the sandbox's control groups are mounted until ModeLimit is done.
const groups = "/sys/fs/cgroup"

// limitProcesses sets the limit of a control group and takes the control groups away,
// so that nobody in the sandbox changes it again: nothing can be mounted there.
func limitProcesses(group, limit string) error {
	if err := os.WriteFile(groups+"/"+group+"/pids.max", []byte(limit), 0); err != nil {
		return err
	}
	return unix.Unmount(groups, unix.MNT_DETACH)
}

// withProcesses starts a command that may have only so many processes and threads,
// those of its user together. The helper itself may have more: without a thread that it
// needs it could not go on.
func withProcesses(limit uint64, start func() error) error {
	if limit == 0 {
		return start()
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
		return err
	}
	lower := own
	lower.Cur = min(limit, own.Cur)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &lower); err != nil {
		return err
	}
	return errors.Join(start(), unix.Setrlimit(unix.RLIMIT_NPROC, &own))
}
