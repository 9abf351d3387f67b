//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// idleSandboxes is how many are made, so that what they share is shared by many.
	idleSandboxes = 50
	// idleLimit is the most memory of each, in MiB.
	idleLimit = 100
)

// measureIdle makes sandboxes with a network, which do nothing, and adds up what their
// processes take: runsc's two and the keeper, pages that are shared counted in parts.
func measureIdle(ctx context.Context, l *lab) ([]row, error) {
	idle, err := l.newHome("idle")
	if err != nil {
		return nil, err
	}
	l.idleHome = idle
	var each samples
	for i := range idleSandboxes {
		if err := idle.run(ctx, "create", "--driver", "local", "--name", fmt.Sprintf("idle-%d", i), "--network", "open"); err != nil {
			return nil, err
		}
	}
	owned := proportionalMemory(filepath.Join(idle.stateDir(), "drivers", "local", "sandboxes") + "/")
	for _, memory := range owned {
		each = append(each, memory)
	}
	if len(each) != idleSandboxes {
		return nil, fmt.Errorf("%d of %d sandboxes run", len(each), idleSandboxes)
	}
	what := fmt.Sprintf("each of %d idle sandboxes", idleSandboxes)
	return []row{{what: what, variant: "local driver, open network", unit: unitMemory, values: each, budget: atMost(idleLimit, unitMemory, each)}},
		idle.run(ctx, "rm", "-f", "--all")
}

// proportionalMemory adds up, for each directory below a path, the memory in MiB of the
// processes that name it in their arguments.
func proportionalMemory(below string) map[string]float64 {
	total := map[string]float64{}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		line, _ := os.ReadFile(file)
		_, after, found := strings.Cut(string(line), below)
		if !found {
			continue
		}
		sandbox := strings.FieldsFunc(after, func(r rune) bool { return r == '/' || r == 0 })[0]
		rollup, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "smaps_rollup"))
		for field := range strings.Lines(string(rollup)) {
			if value, ok := strings.CutPrefix(field, "Pss:"); ok {
				kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
				total[sandbox] += kib / 1024
			}
		}
	}
	return total
}
