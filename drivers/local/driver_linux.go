package local

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/drivers/local/cgroups"
	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/drivers/local/images"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// Driver drives gVisor sandboxes on this machine.
type Driver struct {
	logger *slog.Logger
	// sandboxes is the directory that holds one directory per sandbox.
	sandboxes string
	// helper is the file that is mounted into sandboxes as guest.Path.
	helper string
	// rootless says that the driver runs as an ordinary user.
	rootless bool
	settings settings
	images   *images.Store
}

// New returns the driver.
func New() *Driver {
	return &Driver{rootless: os.Geteuid() != 0, logger: slog.New(slog.DiscardHandler)}
}

// Info implements plugin.Driver.
func (d *Driver) Info() plugin.Info {
	support := cgroups.Discover(cgroups.Self())
	return plugin.Info{
		Name:         "local",
		Version:      version,
		ConfigSchema: settingsSchema,
		Env:          registryVariables,
		Description:  "gVisor sandboxes on this machine, without daemon or root",
		Capabilities: plugin.Capabilities{
			Spec: plugin.SpecSupport{CPUs: enforceable(support, cgroups.CPU), Memory: enforceable(support, cgroups.Memory), Disk: true, PIDs: true,
				Image: true, Workdir: true, Env: true, Labels: true},
			Network: plugin.NetworkSupport{
				None: true, Open: true, AllowHosts: plugin.MatchAddress, AllowCIDRs: true, AllowCIDRsIPv6: true, AllowBoth: true,
				OpenCIDRs: true,
			},
			Lease: plugin.LeaseSupport{TTL: true, Unlimited: true, IdleTimeout: true},
			Exec: plugin.ExecSupport{
				Stdin: true, TTY: true, Signals: true, User: true, SurvivesTimeout: true, Background: true,
			},
			Files:     plugin.FileSupport{SymlinkWrite: plugin.SymlinkFollow},
			Isolation: "gVisor (user-space kernel)",
		},
	}
}

// Configure implements plugin.Configurer.
func (d *Driver) Configure(_ context.Context, config plugin.Config) ([]string, error) {
	if config.Logger != nil {
		d.logger = config.Logger
	}
	var err error
	if d.settings, err = readSettings(config.Settings); err != nil {
		return nil, err
	}
	if strings.Contains(config.StateDir, ",") {
		// runsc takes what follows a comma in --overlay2 for a size.
		return nil, plugin.Errorf(plugin.KindInvalid, "the state directory %q has a comma in its path, which gVisor cannot use", config.StateDir).
			WithHint("set SANDBOXCTL_STATE_DIR to a path without commas")
	}
	// The guest sees the modes of its root's files, which are not to depend on who
	// called. What is private here is made so by name.
	unix.Umask(0o022)
	d.sandboxes = filepath.Join(config.StateDir, "sandboxes")
	if err := os.MkdirAll(d.sandboxes, 0o700); err != nil {
		return nil, plugin.Errorf(plugin.KindUnavailable, "the local driver's state directory cannot be made: %w", err).
			WithHint("set SANDBOXCTL_STATE_DIR to a directory that you can write to")
	}
	d.images = images.NewStore(filepath.Join(config.StateDir, "images"))
	if err := setRegistryVariables(config.Environment); err != nil {
		return nil, err
	}
	helper, err := findHelper()
	d.helper = helper
	return nil, err
}

// findHelper returns the guest helper that was built beside the driver, or else the
// driver itself, which can be the helper but starts slower.
func findHelper() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", plugin.Errorf(plugin.KindInternal, "the driver cannot find its own file: %w", err)
	}
	beside := filepath.Join(filepath.Dir(self), guest.Name)
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
		return beside, nil
	}
	return self, nil
}
