// Package cli is sandboxctl's commands, one file per verb: an options struct, a
// function that makes the command and its flags, and one that does the work.
package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/config"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
)

// Build says which sandboxctl this is; the linker fills it in.
type Build struct {
	Version, Commit, Date string
}

// App is what commands work with. Nothing is opened before a command needs it.
type App struct {
	Build   Build
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Environ []string
	// Executable is sandboxctl's own path, beside which drivers are looked for.
	Executable string
	Now        func() time.Time

	arguments []string
	// helpError is what writing help ended with.
	helpError error

	config  *config.Config
	printer *output.Printer
	ledger  *ledger.Ledger
	host    *host.Host
}

// NewApp returns an App on the process's own streams and environment.
func NewApp(build Build) *App {
	executable, err := os.Executable()
	if err == nil {
		if resolved, err := filepath.EvalSymlinks(executable); err == nil {
			executable = resolved
		}
	}
	return &App{
		Build: build, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Environ: os.Environ(), Executable: executable, Now: time.Now,
	}
}

// lookupEnv finds a variable; as in a process, the last of equal names counts.
func (a *App) lookupEnv(name string) (string, bool) {
	for i := len(a.Environ) - 1; i >= 0; i-- {
		if key, value, _ := strings.Cut(a.Environ[i], "="); key == name {
			return value, true
		}
	}
	return "", false
}

func (a *App) getenv(name string) string {
	value, _ := a.lookupEnv(name)
	return value
}

// openLedger opens the user's state directory.
func (a *App) openLedger() (*ledger.Ledger, error) {
	if a.ledger != nil {
		return a.ledger, nil
	}
	opened, err := ledger.Open(a.config.StateDir)
	if err != nil {
		return nil, err
	}
	a.ledger = opened
	return opened, nil
}

// drivers returns the host, which starts drivers.
func (a *App) drivers() (*host.Host, error) {
	if a.host != nil {
		return a.host, nil
	}
	opened, err := a.openLedger()
	if err != nil {
		return nil, err
	}
	configured := map[string]host.DriverConfig{}
	for name, driver := range a.config.Drivers {
		configured[name] = host.DriverConfig{Path: driver.Path, Environment: driver.Env, Settings: driver.Settings}
	}
	options := host.Options{
		Executable: a.Executable, DataDir: a.config.DataDir, StateDir: a.config.StateDir,
		Drivers: configured, DevOverrides: a.config.DevOverrides, Environ: a.Environ,
		Version: a.Build.Version, Owner: opened.Owner(),
		Warn: func(message string) { a.printer.Warn("%s", message) },
	}
	if a.config.Debug {
		options.DebugLog = a.Stderr
	}
	a.host = host.New(options)
	return a.host, nil
}

// startDriver starts a driver for one command.
func (a *App) startDriver(ctx context.Context, name string) (*host.Driver, error) {
	drivers, err := a.drivers()
	if err != nil {
		return nil, err
	}
	a.printer.Status("starting driver %s", name)
	driver, err := drivers.Start(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, warning := range driver.Warnings {
		a.printer.Warn("driver %s: %s", name, warning)
	}
	return driver, nil
}
