package conformance

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// memoryBudget is how much the driver, and the host with it, may grow while any
// amount of data passes through them.
const memoryBudget = 64 << 20

// boundedMemory fails the case if the driver's process or this one grows beyond the
// budget while do runs. Without /proc there is nothing to measure and do just runs.
func (t *T) boundedMemory(do func()) {
	watched := map[string]int{"the driver": t.driver().PID, "the host": os.Getpid()}
	var watchers sync.WaitGroup
	done := make(chan struct{})
	for who, pid := range watched {
		before, ok := residentBytes(pid)
		if !ok {
			continue
		}
		watchers.Go(func() {
			if grown := peak(pid, done) - before; grown > memoryBudget {
				t.Errorf("%s grew by %d MiB, at most %d MiB are allowed", who, grown>>20, memoryBudget>>20)
			}
		})
	}
	defer watchers.Wait()
	defer close(done)
	do()
}

// peak samples a process's memory until done is closed.
func peak(pid int, done <-chan struct{}) int64 {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var most int64
	for {
		now, _ := residentBytes(pid)
		most = max(most, now)
		select {
		case <-done:
			return most
		case <-ticker.C:
		}
	}
}

// residentBytes is the memory that a process holds, from Linux's /proc.
func residentBytes(pid int) (int64, bool) {
	if pid <= 0 {
		return 0, false
	}
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := bytes.Fields(content)
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}
