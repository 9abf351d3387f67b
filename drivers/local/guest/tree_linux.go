package guest

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killLimit bounds how long the helper goes on against a command that forks faster
// than it is killed. It is less than the time that the driver waits.
const killLimit = 1500 * time.Millisecond

// reapUntil collects children until the one is among them, and returns its status.
// What ends later is left to init.
func reapUntil(pid int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		child, err := unix.Wait4(-1, &status, 0, nil)
		if err == nil && child == pid {
			return status
		}
	}
}

// killTree kills everything below this process. Since it is their reaper, processes
// whose parents die do not get away; all are stopped first, so that none can fork
// between being seen and being killed.
func killTree() {
	deadline := time.Now().Add(killLimit)
	for time.Now().Before(deadline) {
		stopped := map[int]bool{}
		for {
			fresh := false
			for _, pid := range descendants() {
				if !stopped[pid] {
					stopped[pid], fresh = true, true
					_ = unix.Kill(pid, unix.SIGSTOP)
				}
			}
			if !fresh || time.Now().After(deadline) {
				break
			}
		}
		if len(stopped) == 0 {
			return
		}
		for pid := range stopped {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// descendants returns the live processes below this one.
func descendants() []int {
	parents := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if parent, alive := parentOf(pid); alive {
			parents[pid] = parent
		}
	}
	self := os.Getpid()
	var found []int
	for pid := range parents {
		for at := parents[pid]; at != 0; at = parents[at] {
			if at == self {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// parentOf reads a process's parent. A zombie is as good as gone.
func parentOf(pid int) (parent int, alive bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	return parseStat(stat)
}

// parseStat reads the parent from /proc/PID/stat.
func parseStat(stat []byte) (parent int, alive bool) {
	// The command's name, in parentheses, may hold spaces and parentheses.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}
