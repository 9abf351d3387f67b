package host

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepInherited keeps what this process has inherited from its caller, a shell's lock or
// the end of a pipe, from the processes that it starts. What a driver leaves running, as
// the keeper of a sandbox, would hold it for hours.
func keepInherited() {
	const afterStdio = 3
	if unix.CloseRange(afterStdio, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	// Before Linux 5.11.
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= afterStdio {
			unix.CloseOnExec(fd)
		}
	}
}
