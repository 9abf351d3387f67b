package runsc

import (
	"math"
	"slices"
	"strconv"

	"github.com/sandboxctl/sandboxctl/drivers/local/cgroups"
)

// totalMemory is runsc's flag to the sandbox for how much memory the guest sees.
const totalMemory = "--total-memory"

// tellMemory has the sandbox's process, before it gives up its view of the machine, tell
// the guest of the limit of its control group: runsc knows only those that it made
// itself. Programs choose by it how much to use.
func tellMemory(args []string) []string {
	at := slices.Index(args, totalMemory) + 1
	if at == 0 || at == len(args) {
		return args
	}
	limit := cgroups.MemoryLimit(cgroups.Self())
	if total, err := strconv.ParseUint(args[at], 10, 64); err != nil || limit >= total || limit == math.MaxUint64 {
		return args
	}
	told := slices.Clone(args)
	told[at] = strconv.FormatUint(limit, 10)
	return told
}
