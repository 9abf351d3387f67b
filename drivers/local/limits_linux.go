package local

import (
	"strings"

	"github.com/sandboxctl/sandboxctl/drivers/local/cgroups"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// groupFlags are the limits that need control groups of this machine. The others are
// gVisor's own business and can be had everywhere.
var groupFlags = []struct {
	flag       string
	controller cgroups.Controller
	wanted     func(*plugin.SandboxSpec) bool
}{
	{"--cpus", cgroups.CPU, func(spec *plugin.SandboxSpec) bool { return spec.CPUs != 0 }},
	{"--memory", cgroups.Memory, func(spec *plugin.SandboxSpec) bool { return spec.MemoryBytes != 0 }},
}

// smallestMemory is about what gVisor takes for itself, in bytes.
const smallestMemory = 64 << 20

// checkLimits refuses limits that cannot be enforced here, and those that leave nothing
// to run in.
func checkLimits(spec *plugin.SandboxSpec) error {
	if _, err := planGroup(spec); err != nil {
		return err
	}
	switch {
	case spec.MemoryBytes != 0 && spec.MemoryBytes < smallestMemory:
		return plugin.Errorf(plugin.KindInvalid, "--memory of %d bytes is less than gVisor itself needs", spec.MemoryBytes).
			WithHint("take 128m or more")
	case spec.DiskBytes != 0 && spec.DiskBytes < smallestDisk:
		return plugin.Errorf(plugin.KindInvalid, "--disk of %d bytes leaves a sandbox no room", spec.DiskBytes).
			WithHint("take 1m or more")
	case spec.PIDs != 0 && spec.PIDs < fewestProcesses:
		return plugin.Errorf(plugin.KindInvalid, "--pids %d leaves commands none, since %d are kept for the sandbox itself", spec.PIDs, reservedProcesses).
			WithHint("take %d or more", fewestProcesses)
	}
	return nil
}

// enforceable reports whether a controller can be used here.
func enforceable(support *cgroups.Support, controller cgroups.Controller) bool {
	_, ok := support.Obstacle(controller)
	return ok
}

// describeLimits says which limits can be enforced, for doctor.
func describeLimits() plugin.Check {
	check := plugin.Check{Name: "limits", Status: plugin.CheckOK}
	support := cgroups.Discover(cgroups.Self())
	can := []string{"--pids", "--disk"}
	var cannot, fixes []string
	for _, limit := range groupFlags {
		obstacle, ok := support.Obstacle(limit.controller)
		if ok {
			can = append(can, limit.flag)
			continue
		}
		check.Status = plugin.CheckWarning
		cannot = append(cannot, limit.flag+" is refused: "+obstacle.Reason)
		if len(fixes) == 0 || fixes[len(fixes)-1] != obstacle.Fix {
			fixes = append(fixes, obstacle.Fix)
		}
	}
	check.Detail = strings.Join(append([]string{strings.Join(can, ", ") + " can be enforced"}, cannot...), "; ")
	check.Fix = strings.Join(fixes, "; ")
	return check
}
