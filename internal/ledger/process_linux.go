package ledger

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// processStart returns the start time of pid in clock ticks since boot, or "" when there is no such process or only its
// zombie.
func processStart(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// A process that ends between open and read gives ESRCH.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return parseStat(string(data))
}

// parseStat takes the start time out of a /proc/<pid>/stat line. The command name in parentheses may itself hold spaces and
// parentheses, so fields are counted from the last ')'. proc_pid_stat(5): field 3 is the state, 22 the start time.
func parseStat(stat string) (string, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("unexpected process status %q", stat)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return "", nil
	}
	return fields[19], nil
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func pidNamespace() string {
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return link
}
