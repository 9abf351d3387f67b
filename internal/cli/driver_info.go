package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func (a *App) newDriverInfoCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "info [DRIVER]",
		Short: "Show what a driver can do",
		Args:  cobra.MaximumNArgs(1),
	}
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		name := a.config.Driver
		if len(args) == 1 {
			name = args[0]
		}
		return a.runDriverInfo(ctx, name)
	})
}

// driverInfoResult is the JSON of driver info.
type driverInfoResult struct {
	output.Header
	Name         string             `json:"name"`
	Version      string             `json:"version"`
	Description  string             `json:"description"`
	Path         string             `json:"path"`
	Source       string             `json:"source"`
	DefaultImage string             `json:"default_image,omitempty"`
	Capabilities driverCapabilities `json:"capabilities"`
	Options      []driverOption     `json:"options"`
	Environment  []driverVariable   `json:"environment"`
	ConfigSchema json.RawMessage    `json:"config_schema,omitempty"`
}

// driverCapabilities is what a driver can enforce.
type driverCapabilities struct {
	Isolation string `json:"isolation"`
	// Create lists the flags of create that are enforced.
	Create []string `json:"create"`
	// Network lists the policies that are enforced: none, open, allow-host (with how
	// hosts are matched), allow-cidr.
	Network []string `json:"network"`
	// HostMatch is address, sni or proxy.
	HostMatch string `json:"host_match,omitempty"`
	// LeaseAtBackend says that the backend ends sandboxes by itself.
	LeaseAtBackend bool     `json:"lease_at_backend"`
	UnlimitedLease bool     `json:"unlimited_lease"`
	Renew          bool     `json:"renew"`
	MinTTLS        *float64 `json:"min_ttl_s,omitempty"`
	MaxTTLS        *float64 `json:"max_ttl_s,omitempty"`
	// Exec lists what exec can do: stdin, tty, signals, user, background.
	Exec            []string `json:"exec"`
	SurvivesTimeout bool     `json:"survives_timeout"`
	MaxTimeoutS     *float64 `json:"max_timeout_s,omitempty"`
	Files           bool     `json:"files"`
	Archives        bool     `json:"archives"`
	// SymlinkWrite is follow or replace.
	SymlinkWrite string `json:"symlink_write,omitempty"`
}

type driverOption struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type driverVariable struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Secret      bool   `json:"secret"`
	// Set says that the variable has a value here.
	Set bool `json:"set"`
}

func (a *App) runDriverInfo(ctx context.Context, name string) (output.Result, error) {
	drivers, err := a.drivers()
	if err != nil {
		return nil, err
	}
	driver, err := drivers.StartUnconfigured(ctx, name)
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	info := driver.Info
	result := &driverInfoResult{
		Name: info.Name, Version: info.Version, Description: info.Description, Path: driver.Path, Source: string(driver.Source),
		DefaultImage: info.DefaultImage, Capabilities: describeCapabilities(info.Capabilities),
		Options: []driverOption{}, Environment: []driverVariable{},
	}
	for _, option := range info.Options {
		result.Options = append(result.Options, driverOption(option))
	}
	for _, variable := range info.Env {
		source := variable.Name
		if other := a.config.Drivers[name].Env[variable.Name]; other != "" {
			source = other
		}
		result.Environment = append(result.Environment, driverVariable{
			Name: source, Description: variable.Description, Secret: variable.Secret, Set: a.getenv(source) != "",
		})
	}
	if json.Valid([]byte(info.ConfigSchema)) {
		result.ConfigSchema = json.RawMessage(info.ConfigSchema)
	}
	return result, nil
}

func describeCapabilities(c plugin.Capabilities) driverCapabilities {
	return driverCapabilities{
		Isolation: c.Isolation,
		Create: claimed(
			claim{"image", c.Spec.Image}, claim{"env", c.Spec.Env}, claim{"label", c.Spec.Labels}, claim{"workdir", c.Spec.Workdir},
			claim{"cpus", c.Spec.CPUs}, claim{"memory", c.Spec.Memory}, claim{"disk", c.Spec.Disk}, claim{"pids", c.Spec.PIDs},
			claim{"gpu", c.Spec.GPU}, claim{"idle-timeout", c.Lease.IdleTimeout}),
		Network: claimed(
			claim{"none", c.Network.None}, claim{"open", c.Network.Open}, claim{"allow-host", c.Network.AllowHosts != ""}, claim{"allow-cidr", c.Network.AllowCIDRs},
			claim{"access-log", c.Network.AccessLog}),
		HostMatch:      string(c.Network.AllowHosts),
		LeaseAtBackend: c.Lease.TTL, UnlimitedLease: c.Lease.Unlimited, Renew: c.Lease.Renew,
		MinTTLS: seconds(c.Lease.MinTTL), MaxTTLS: seconds(c.Lease.MaxTTL),
		Exec: claimed(
			claim{"stdin", c.Exec.Stdin}, claim{"tty", c.Exec.TTY}, claim{"signals", c.Exec.Signals}, claim{"user", c.Exec.User}, claim{"background", c.Exec.Background}),
		SurvivesTimeout: c.Exec.SurvivesTimeout, MaxTimeoutS: seconds(c.Exec.MaxTimeout),
		Files: c.Files.Files, Archives: c.Files.Archive, SymlinkWrite: string(c.Files.SymlinkWrite),
	}
}

type claim struct {
	name  string
	holds bool
}

func claimed(claims ...claim) []string {
	names := []string{}
	for _, claim := range claims {
		if claim.holds {
			names = append(names, claim.name)
		}
	}
	return names
}

func seconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func (r *driverInfoResult) Text(p *output.Printer) {
	c := r.Capabilities
	lease := "ended by sandboxctl gc"
	if c.LeaseAtBackend {
		lease = "ended by the backend"
	}
	timeout := "the sandbox ends with a command that times out"
	if c.SurvivesTimeout {
		timeout = "the sandbox outlives a command that times out"
	}
	for _, row := range [][2]string{
		{"Driver", fmt.Sprintf("%s %s: %s", r.Name, r.Version, r.Description)},
		{"Path", fmt.Sprintf("%s (%s)", r.Path, r.Source)},
		{"Isolation", c.Isolation}, {"Image", r.DefaultImage},
		{"Create", strings.Join(c.Create, ", ")}, {"Network", strings.Join(c.Network, ", ")}, {"Hosts by", c.HostMatch},
		{"Exec", strings.Join(c.Exec, ", ")}, {"Timeouts", timeout}, {"Leases", lease},
	} {
		if row[1] != "" {
			p.Line("%-10s %s", row[0]+":", output.Printable(row[1]))
		}
	}
	for _, option := range r.Options {
		p.Line("%-10s %s", "Option:", output.Printable(fmt.Sprintf("--opt %s=...  %s", option.Name, option.Description)))
	}
	for _, variable := range r.Environment {
		p.Line("%-10s %s", "Variable:", output.Printable(fmt.Sprintf("%s  %s%s", variable.Name, variable.Description, map[bool]string{true: " (set)", false: " (not set)"}[variable.Set])))
	}
}
