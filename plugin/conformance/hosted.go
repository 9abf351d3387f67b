package conformance

import (
	"context"
	"encoding/json"
	"os"

	"github.com/sandboxctl/sandboxctl/internal/host"
)

// Hosted is a target that a host finds by its name.
func Hosted(h *host.Host, name string) Target {
	return Target{Start: func(ctx context.Context) (*Driver, error) {
		started, err := h.Start(ctx, name)
		if err != nil {
			return nil, err
		}
		return &Driver{Calls: started, Info: started.Info, PID: started.PID()}, nil
	}}
}

// BinaryOptions say how a driver's executable is started.
type BinaryOptions struct {
	// Name is the driver's name; Path, absolute, its executable.
	Name, Path string
	// Settings is the driver's section of the configuration, a JSON object or empty.
	Settings json.RawMessage
	// StateDir is where the driver keeps its state; empty when it needs none.
	StateDir string
	// Environ, in the form of os.Environ, is what the driver's variables are taken
	// from; nil means this process's environment.
	Environ []string
}

// probeVariable is a variable that Binary adds to the driver's environment. A guest in which
// it shows up has been given what belongs to the driver.
const probeVariable, probeValue = "LC_SANDBOXCTL_PROBE", "only-for-the-driver"

// Binary is a target that is started from an executable, as sandboxctl would.
func Binary(options BinaryOptions) Target {
	environ := options.Environ
	if environ == nil {
		environ = os.Environ()
	}
	return Hosted(host.New(host.Options{
		StateDir: options.StateDir,
		Drivers:  map[string]host.DriverConfig{options.Name: {Path: options.Path, Settings: options.Settings}},
		Environ:  append(environ[:len(environ):len(environ)], probeVariable+"="+probeValue),
		Version:  "conformance",
	}), options.Name)
}
