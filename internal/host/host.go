package host

import (
	"encoding/json"
	"io"
	"runtime"
	"sync"
	"time"
)

// Options is all that a Host knows of its surroundings; it reads no globals.
type Options struct {
	// Executable is the path of the running sandboxctl; drivers are looked for next
	// to it. Empty leaves that place out.
	Executable string
	// DataDir holds installed drivers: <DataDir>/drivers/<name>/<version>/<os>_<arch>/.
	DataDir string
	// StateDir holds the drivers' own state: <StateDir>/drivers/<name>/.
	StateDir string
	// Drivers is the configuration by driver name.
	Drivers map[string]DriverConfig
	// DevOverrides replaces drivers by executables under development, by name. A
	// path is absolute and names the executable or the directory that holds it.
	DevOverrides map[string]string
	// Environ is the user's environment in the form of os.Environ.
	Environ []string
	// DebugLog takes the drivers' logs; nil turns them off. Secrets are cut out.
	DebugLog io.Writer
	// Version is sandboxctl's, Owner the random id of this user's state; both are
	// handed to drivers.
	Version, Owner string
	// Warn tells the user something that does not stop the command. It is called from
	// one goroutine at a time, and may be nil.
	Warn func(message string)
}

// DriverConfig is one driver's section of the configuration.
type DriverConfig struct {
	// Path, unless empty, is where the driver is, absolute; no other place is tried.
	Path string
	// Settings is handed to the driver as it is, a JSON object.
	Settings json.RawMessage
	// Environment maps a variable that the driver declares to the variable of the
	// user's environment that it is to be taken from. Without an entry they are
	// the same.
	Environment map[string]string
}

// Host finds and starts drivers. It may be used from several goroutines.
type Host struct {
	options Options
	environ environ
	// goos and goarch are this machine's, except in tests.
	goos, goarch string
	// startLimit and infoLimit are the constants, except in tests.
	startLimit, infoLimit time.Duration
	// debugLog is Options.DebugLog for the use of several drivers, or nil.
	debugLog io.Writer
	warning  sync.Mutex
}

// startLimit is how long a driver may take to say that it is there. The first start
// of a new binary takes up to four seconds on macOS, while it is scanned
// (Terraform issue 35891), and a cold disk adds to it.
const startLimit = 15 * time.Second

// New returns a Host. It touches nothing yet.
func New(options Options) *Host {
	h := &Host{
		options:    options,
		environ:    newEnviron(options.Environ, runtime.GOOS),
		goos:       runtime.GOOS,
		goarch:     runtime.GOARCH,
		startLimit: startLimit,
		infoLimit:  infoLimit,
	}
	if options.DebugLog != nil {
		h.debugLog = &sharedWriter{w: options.DebugLog}
	}
	return h
}

func (h *Host) warn(message string) {
	if h.options.Warn == nil {
		return
	}
	h.warning.Lock()
	defer h.warning.Unlock()
	h.options.Warn(message)
}
