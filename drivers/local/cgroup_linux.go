package local

import (
	"os/exec"

	"github.com/sandboxctl/sandboxctl/drivers/local/cgroups"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// planGroup returns the control group of a sandbox, which is yet to be made, or nil for
// one that needs none. It refuses limits that cannot be enforced.
func planGroup(spec *plugin.SandboxSpec) (*cgroups.Group, error) {
	if spec.CPUs == 0 && spec.MemoryBytes == 0 {
		return nil, nil
	}
	support := cgroups.Discover(cgroups.Self())
	for _, limit := range groupFlags {
		if obstacle, ok := support.Obstacle(limit.controller); !ok && limit.wanted(spec) {
			return nil, plugin.Refusedf(limit.flag, "the local driver cannot enforce %s here: %s", limit.flag, obstacle.Reason).WithHint("%s", obstacle.Fix)
		}
	}
	return support.Plan("sandboxctl-"+spec.ID, groupLimits(spec)), nil
}

func groupLimits(spec *plugin.SandboxSpec) cgroups.Limits {
	return cgroups.Limits{CPUs: spec.CPUs, MemoryBytes: spec.MemoryBytes}
}

// startLimited starts a command with the sandbox's limits in force.
func startLimited(cmd *exec.Cmd, created *record) error {
	if created.Group == nil {
		return cmd.Start()
	}
	if err := created.Group.Make(groupLimits(&created.Spec)); err != nil {
		return err
	}
	return created.Group.Start(cmd)
}

// memoryKills returns how many processes of the sandbox the kernel has killed for want
// of memory.
func (r *record) memoryKills() int {
	if r.Group == nil {
		return 0
	}
	return r.Group.Kills()
}
