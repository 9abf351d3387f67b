package cgroups

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MemoryLimit returns the least limit of memory that the process's group or the one
// above of it has, in bytes, or math.MaxUint64 where none can be seen.
func MemoryLimit(host Host) uint64 {
	least := uint64(math.MaxUint64)
	mounted, err := host.hierarchies()
	if err != nil {
		return least
	}
	for _, each := range mounted {
		file := "memory.limit_in_bytes"
		if each.unified {
			file = "memory.max"
		} else if !slices.Contains(each.controllers, string(Memory)) {
			continue
		}
		for _, dir := range []string{each.own, filepath.Dir(each.own)} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			if each.own == "" || err != nil {
				continue
			}
			if limit, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64); err == nil {
				least = min(least, limit)
			}
		}
	}
	return least
}
