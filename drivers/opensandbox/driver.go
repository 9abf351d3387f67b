// Package opensandbox drives sandboxes on an OpenSandbox server, which runs them on Docker or Kubernetes. It speaks
// the server's HTTP interface for the life of a sandbox and that of execd, the daemon inside each sandbox, for
// commands.
package opensandbox

import (
	"log/slog"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/posix"
)

// version is set when a release is linked.
var version = "dev"

// minTTL is the shortest lifetime the server takes.
const minTTL = 60 * time.Second

// optionNamesOnly is the driver option by which a user accepts a server that filters names but not addresses.
const optionNamesOnly = "accept-names-only"

// Driver is the OpenSandbox driver. Its zero value answers Info; anything else needs Configure first.
type Driver struct {
	*posix.Files

	settings settings
	server   *server
	secret   *tokenSecret
	logger   *slog.Logger
}

var (
	_ plugin.Driver        = (*Driver)(nil)
	_ plugin.Configurer    = (*Driver)(nil)
	_ plugin.HealthChecker = (*Driver)(nil)
	_ plugin.Inspector     = (*Driver)(nil)
	_ plugin.Renewer       = (*Driver)(nil)
	_ plugin.FileSystem    = (*Driver)(nil)
	_ plugin.Archiver      = (*Driver)(nil)
)

// New returns a driver that has yet to be configured.
func New() *Driver {
	d := &Driver{logger: slog.New(slog.DiscardHandler)}
	// execd has a file interface of its own, but it expands "$" in names, cannot say non-UTF-8 ones, holds uploads
	// in the guest's /tmp and answers a directory with 200; exec is exact.
	d.Files = posix.New(d.Exec)
	return d
}

// Info says what any OpenSandbox server can do. What depends on the server's own configuration, like how egress is
// enforced, is checked at create.
func (d *Driver) Info() plugin.Info {
	return plugin.Info{
		Name:        "opensandbox",
		Version:     version,
		Description: "sandboxes on a self-hosted OpenSandbox server (Docker or Kubernetes)",
		Capabilities: plugin.Capabilities{
			Spec: plugin.SpecSupport{Image: true, CPUs: true, Memory: true, GPU: true, Workdir: true, Env: true, Labels: true},
			Network: plugin.NetworkSupport{
				// The sidecar turns IPv6 off, so that allowing a range of it would allow nothing.
				None: true, Open: true, AllowHosts: plugin.MatchAddress, AllowCIDRs: true, AllowBoth: true,
			},
			Lease:     plugin.LeaseSupport{TTL: true, Unlimited: true, MinTTL: minTTL},
			Exec:      plugin.ExecSupport{Stdin: true, TTY: true, Signals: true, SurvivesTimeout: true, Background: true},
			Files:     plugin.FileSupport{SymlinkWrite: plugin.SymlinkFollow},
			Isolation: "what the server's runtime gives: containers, or gVisor or Kata where it is so configured",
		},
		Env: []plugin.EnvVar{
			{Name: envAPIKey, Secret: true, Description: "API key of the OpenSandbox server"},
			{Name: envDomain, Description: "host and port of the server, where the configuration names no endpoint"},
			{Name: envProtocol, Description: "http (the default) or https, with " + envDomain},
		},
		ConfigSchema: configSchema,
		Options: []plugin.Option{{
			Name: optionNamesOnly,
			Description: "true accepts --network none and --allow-host on a server that filters only names " +
				"(egress mode dns): connections to literal addresses are then not blocked",
		}},
		DefaultImage: "python:3.12-slim",
	}
}
