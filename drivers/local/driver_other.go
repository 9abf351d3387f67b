//go:build !linux

package local

import (
	"context"
	"runtime"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Driver says, on systems without gVisor, what to use instead.
type Driver struct{}

// New returns the driver.
func New() *Driver { return &Driver{} }

// Info implements plugin.Driver. Nothing is claimed.
func (*Driver) Info() plugin.Info {
	return plugin.Info{Name: "local", Version: version, Description: "gVisor sandboxes on this machine; only on Linux"}
}

func unsupported() error {
	return plugin.Errorf(plugin.KindRefused, "the local driver needs Linux and this is %s", runtime.GOOS).
		WithHint("use --driver sbx for sandboxes on this machine, or --driver opensandbox or modal for others")
}

// Create implements plugin.Driver.
func (*Driver) Create(context.Context, *plugin.SandboxSpec, plugin.CreateEvents) (*plugin.Sandbox, error) {
	return nil, unsupported()
}

// List implements plugin.Driver. There are none.
func (*Driver) List(context.Context, plugin.ListRequest) (*plugin.SandboxList, error) {
	return &plugin.SandboxList{}, nil
}

// Destroy implements plugin.Driver. There is nothing to remove.
func (*Driver) Destroy(context.Context, plugin.Ref) (bool, error) { return true, nil }

// Exec implements plugin.Driver.
func (*Driver) Exec(context.Context, plugin.Ref, *plugin.ExecRequest, *plugin.ExecIO) (plugin.ExitStatus, error) {
	return plugin.ExitStatus{}, unsupported()
}

// CheckHealth implements plugin.HealthChecker.
func (*Driver) CheckHealth(context.Context) []plugin.Check {
	return []plugin.Check{{
		Name: "system", Status: plugin.CheckFailed, Detail: "gVisor runs on Linux only, and this is " + runtime.GOOS,
		Fix: "use the driver sbx, opensandbox or modal",
	}}
}
