package modal

import (
	"sync"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/posix"
)

// version is set when a release is linked.
var version = "dev"

const (
	defaultImage = "python:3.12-slim"
	maxLifetime  = 24 * time.Hour
)

// Driver runs sandboxes at Modal. Make one with New.
type Driver struct {
	// shell reads files and moves trees with the image's own tools.
	shell    *posix.Files
	config   plugin.Config
	settings settings

	mu sync.Mutex
	// client is made on the first call that needs it, because credentials are
	// not needed to describe the driver.
	client *modalsdk.Client
	// workdirs are the working directories of sandboxes that were created
	// without one, once asked for.
	workdirs map[string]string
}

// New returns a driver that is still to be configured.
func New() *Driver {
	d := &Driver{workdirs: make(map[string]string)}
	d.shell = posix.New(d.Exec)
	return d
}

// Info says what Modal can enforce.
func (d *Driver) Info() plugin.Info {
	return plugin.Info{
		Name:        "modal",
		Version:     version,
		Description: "hosted sandboxes at modal.com",
		Capabilities: plugin.Capabilities{
			Spec: plugin.SpecSupport{Image: true, CPUs: true, Memory: true, GPU: true, Workdir: true, Env: true, Labels: true},
			Network: plugin.NetworkSupport{
				None: true, Open: true, AllowCIDRs: true,
				// With hosts in the policy every address is reachable on port
				// 443, so hosts and CIDRs together would enforce neither.
				AllowHosts: plugin.MatchSNI, AllowBoth: false,
			},
			Lease: plugin.LeaseSupport{TTL: true, MinTTL: time.Second, MaxTTL: maxLifetime, IdleTimeout: true},
			Exec:  plugin.ExecSupport{Stdin: true, TTY: true, Signals: true, SurvivesTimeout: true, Background: true},
			// Modal's file API renames a new file into place.
			Files:     plugin.FileSupport{SymlinkWrite: plugin.SymlinkReplace},
			Isolation: "gVisor at Modal",
		},
		Env:          environment(),
		ConfigSchema: settingsSchema,
		Options: []plugin.Option{{
			Name:        hostMatchOption,
			Description: `"sni" accepts that --allow-host only matches the name in TLS handshakes on port 443: DNS stays open, and hosts behind the same TLS endpoint can be reached`,
		}},
		DefaultImage: defaultImage,
	}
}
