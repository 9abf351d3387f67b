// Package sbx drives Docker Sandboxes through Docker's sbx program: microVMs on
// the developer's own machine.
//
// sbx has no labels, no leases and no way to pass a command's environment that
// does not show in the process list, and it ends with exit code 1 both when it
// fails and when the command does. The driver therefore keeps a record of every
// sandbox in its state directory, and runs commands under a small supervisor, a
// shell program that it sends to the guest's sh (supervise.sh): what the
// supervisor said is known to be from the guest, and what it did not say was not
// done.
package sbx

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/posix"
)

// version is set when a release is linked.
var version = "dev"

const defaultImage = "python:3.12-slim"

// Driver implements plugin.Driver.
type Driver struct {
	*posix.Files

	config   plugin.Config
	settings settings
	// retryDelay is the pause before the first repetition of a create that was
	// rate-limited; it doubles.
	retryDelay time.Duration

	mu  sync.Mutex
	sbx *program
}

var (
	_ plugin.Driver        = (*Driver)(nil)
	_ plugin.Configurer    = (*Driver)(nil)
	_ plugin.HealthChecker = (*Driver)(nil)
	_ plugin.Inspector     = (*Driver)(nil)
	_ plugin.Renewer       = (*Driver)(nil)
)

// New returns the driver.
func New() *Driver {
	d := &Driver{settings: defaultSettings(), retryDelay: 2 * time.Second}
	d.Files = posix.New(d.Exec)
	return d
}

// logger is the host's, once the driver was configured.
func (d *Driver) logger() *slog.Logger {
	if d.config.Logger != nil {
		return d.config.Logger
	}
	return slog.Default()
}

// settings is the driver's section of the user's configuration.
type settings struct {
	Binary        string
	Memory        string
	CallTimeout   time.Duration
	CreateTimeout time.Duration

	memoryBytes uint64
}

func defaultSettings() settings {
	return settings{Memory: "2g", CallTimeout: 30 * time.Second, CreateTimeout: 10 * time.Minute, memoryBytes: 2 << 30}
}

const settingsSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "binary": {"type": "string", "description": "Docker's sbx program; found in PATH when unset."},
    "memory": {"type": "string", "description": "Memory of a sandbox that is created without --memory, such as 2g."},
    "call_timeout": {"type": "string", "description": "How long sbx may take for anything but a create, such as 30s."},
    "create_timeout": {"type": "string", "description": "How long a create may take, with the download of the image, such as 10m."}
  }
}`

// Info implements plugin.Driver.
func (d *Driver) Info() plugin.Info {
	return plugin.Info{
		Name:        "sbx",
		Version:     version,
		Description: "Docker Sandboxes: microVMs on this machine, through Docker's sbx",
		Capabilities: plugin.Capabilities{
			Spec:    plugin.SpecSupport{Image: true, CPUs: true, Memory: true, Workdir: true, Env: true, Labels: true},
			Network: plugin.NetworkSupport{None: true, Open: true, AllowHosts: plugin.MatchProxy},
			Lease:   plugin.LeaseSupport{Unlimited: true},
			Exec:    plugin.ExecSupport{Stdin: true, TTY: terminalSupport, Signals: true, User: true, SurvivesTimeout: true},
			Files:   plugin.FileSupport{SymlinkWrite: plugin.SymlinkFollow},

			Isolation: "microVM",
		},
		Env:          environmentVariables(),
		ConfigSchema: settingsSchema,
		DefaultImage: defaultImage,
	}
}

// environmentVariables are the variables that sbx itself reads. It keeps its
// sign-in with the desktop's secret store, which it finds by them.
func environmentVariables() []plugin.EnvVar {
	names := []string{
		"HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
		"DBUS_SESSION_BUS_ADDRESS", "DOCKER_CONFIG", "DOCKER_SANDBOXES_API", "DOCKER_SANDBOXES_ROOT_SIZE", "DOCKER_SANDBOXES_DOCKER_SIZE",
		"DOCKER_SANDBOXES_PROXY", "DOCKER_SANDBOXES_NO_PROXY", "DOCKER_SANDBOXES_IP_STACK",
	}
	vars := make([]plugin.EnvVar, 0, len(names))
	for _, name := range names {
		vars = append(vars, plugin.EnvVar{Name: name, Description: "read by sbx"})
	}
	return vars
}

// Configure implements plugin.Configurer.
func (d *Driver) Configure(_ context.Context, config plugin.Config) ([]string, error) {
	parsed, err := parseSettings(config.Settings)
	if err != nil {
		return nil, err
	}
	if config.StateDir == "" {
		return nil, plugin.Errorf(plugin.KindInvalid, "the sbx driver needs a state directory, since sbx keeps no labels")
	}
	d.config, d.settings = config, parsed
	return nil, nil
}

func parseSettings(text []byte) (settings, error) {
	s := defaultSettings()
	if len(bytes.TrimSpace(text)) == 0 {
		return s, nil
	}
	raw := struct {
		Binary        *string `json:"binary"`
		Memory        *string `json:"memory"`
		CallTimeout   *string `json:"call_timeout"`
		CreateTimeout *string `json:"create_timeout"`
	}{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&raw); err != nil {
		return s, plugin.Errorf(plugin.KindInvalid, "the configuration of driver sbx is wrong: %w", err)
	}
	if raw.Binary != nil {
		s.Binary = *raw.Binary
	}
	if raw.Memory != nil {
		bytes, err := parseSize(*raw.Memory)
		if err != nil {
			return s, plugin.Errorf(plugin.KindInvalid, "the configuration of driver sbx is wrong: memory: %w", err)
		}
		s.Memory, s.memoryBytes = *raw.Memory, bytes
	}
	for _, field := range []struct {
		name string
		text *string
		into *time.Duration
	}{{"call_timeout", raw.CallTimeout, &s.CallTimeout}, {"create_timeout", raw.CreateTimeout, &s.CreateTimeout}} {
		if field.text == nil {
			continue
		}
		value, err := time.ParseDuration(*field.text)
		if err != nil || value <= 0 {
			return s, plugin.Errorf(plugin.KindInvalid, "the configuration of driver sbx is wrong: %s %q is not a duration above zero, such as 30s", field.name, *field.text)
		}
		*field.into = value
	}
	return s, nil
}

// parseSize reads sbx's sizes: a number and b, k, m or g, in binary units.
func parseSize(text string) (uint64, error) {
	var number uint64
	var unit string
	if n, err := fmt.Sscanf(text, "%d%s", &number, &unit); n == 0 || err != nil && n < 1 {
		return 0, fmt.Errorf("%q is not a size such as 2g", text)
	}
	shift, ok := map[string]uint{"": 0, "b": 0, "k": 10, "m": 20, "g": 30}[unit]
	if !ok || number == 0 || number > 1<<62>>shift {
		return 0, fmt.Errorf("%q is not a size such as 2g", text)
	}
	return number << shift, nil
}
