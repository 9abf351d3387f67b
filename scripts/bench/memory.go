//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memoryLimit is the most memory that sandboxctl and a driver may use each, in MiB.
const memoryLimit = 64

// sampleEvery is how often the peak memory of a process is read. The kernel keeps the
// peak, so that only its rise in the last moment before the end is missed.
const sampleEvery = 10 * time.Millisecond

// footprint is the peak resident memory of sandboxctl and of its driver, in MiB.
type footprint struct{ command, driver float64 }

// watched runs sandboxctl to its end and returns how long that took and what memory it
// needed.
func (l *lab) watched(cmd *exec.Cmd) (time.Duration, footprint, error) {
	var seen footprint
	var watching sync.WaitGroup
	ended := make(chan struct{})
	elapsed, err := l.follow(cmd, func() {
		watching.Go(func() { seen = watch(cmd.Process.Pid, ended) })
	})
	close(ended)
	watching.Wait()
	if err == nil && (seen.command == 0 || seen.driver == 0) {
		err = fmt.Errorf("%s ended before its memory could be read", strings.Join(cmd.Args, " "))
	}
	return elapsed, seen, err
}

func watch(pid int, ended <-chan struct{}) (seen footprint) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	driver := 0
	for {
		select {
		case <-ended:
			return seen
		case <-ticker.C:
		}
		if driver == 0 {
			driver = driverOf(pid)
		}
		seen.command = max(seen.command, peakMemory(pid))
		if driver != 0 {
			seen.driver = max(seen.driver, peakMemory(driver))
		}
	}
}

// driverOf returns the process of the driver that sandboxctl has started, or zero.
func driverOf(pid int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		content, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(content)) {
			child, err := strconv.Atoi(field)
			if err == nil && strings.HasPrefix(programOf(child), "sandboxctl-driver-") {
				return child
			}
		}
	}
	return 0
}

func programOf(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	program, _, _ := bytes.Cut(line, []byte{0})
	return filepath.Base(string(program))
}

// peakMemory is in MiB, and zero for a process that is gone.
func peakMemory(pid int) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kib / 1024
		}
	}
	return 0
}

// memoryRows are the two rows of a footprint.
func memoryRows(what, variant string, command, driver samples) []row {
	return []row{
		{what: what + ", memory of sandboxctl", variant: variant, unit: unitMemory, values: command, budget: atMost(memoryLimit, unitMemory, command)},
		{what: what + ", memory of the driver", variant: variant, unit: unitMemory, values: driver, budget: atMost(memoryLimit, unitMemory, driver)},
	}
}

// measureYes has a command print without end until its timeout.
func measureYes(ctx context.Context, l *lab) ([]row, error) {
	fake, err := l.fake(ctx)
	if err != nil {
		return nil, err
	}
	local, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	var result []row
	for _, each := range []struct {
		variant string
		home    *home
		argv    []string
	}{
		{"local driver", local, []string{"yes"}},
		{"fake driver", fake, []string{"print", "0", strconv.Itoa(chunkSizes[0])}},
	} {
		seen, err := each.home.printFor10s(ctx, each.argv)
		if err != nil {
			return nil, err
		}
		result = append(result, memoryRows("yes for 10 s with --json", each.variant, samples{seen.command}, samples{seen.driver})...)
	}
	return result, nil
}

// printFor10s ends by a timeout, with an exit code that says so.
func (h *home) printFor10s(ctx context.Context, argv []string) (footprint, error) {
	cmd := h.command(ctx, append([]string{"exec", "--json", "--timeout", "10s", sandboxName, "--"}, argv...)...)
	const timedOut = 124
	_, seen, err := h.lab.watched(cmd)
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == timedOut {
		return seen, nil
	}
	if err == nil {
		err = fmt.Errorf("%s ended before its timeout", strings.Join(cmd.Args, " "))
	}
	return seen, err
}
