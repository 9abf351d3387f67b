package ledger

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// processStart returns the start time of pid since the epoch, or "" when there is no such process or only its zombie.
func processStart(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	// The kernel answers an unknown pid with an empty reply, which the wrapper reports as EIO.
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	const zombie = 5 // SZOMB in sys/proc.h
	if info.Proc.P_stat == zombie {
		return "", nil
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec), nil
}

// bootID is the session uuid of the boot. kern.boottime would not do: it moves when the clock is set.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

func pidNamespace() string { return "" }
