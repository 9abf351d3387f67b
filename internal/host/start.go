package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Start starts the named driver, asks who it is and configures it. Its errors are an
// *UnknownDriverError, a *StartError, a *CrashError, an *plugin.Error (an impossible
// name, or the driver's own about its configuration), or the end of the context. The
// driver must be closed.
func (h *Host) Start(ctx context.Context, name string) (*Driver, error) {
	return h.begin(ctx, name, h.configure)
}

// StartUnconfigured starts the named driver and asks who it is, and that only: what a
// driver needs can be asked of one that lacks it. The driver must be closed, and not be
// called. Its errors are Start's.
func (h *Host) StartUnconfigured(ctx context.Context, name string) (*Driver, error) {
	return h.begin(ctx, name, nil)
}

// configuring is what is done with a driver that has said who it is.
type configuring func(ctx context.Context, driver *Driver, found Found, hide *redactor) error

func (h *Host) begin(ctx context.Context, name string, configure configuring) (*Driver, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	found, err := h.find(name)
	if err != nil {
		return nil, err
	}
	if found.Problem != nil {
		return nil, found.Problem
	}
	driver, hide, err := h.connect(ctx, found)
	if err != nil {
		return nil, err
	}
	err = h.introduce(ctx, driver, found)
	if err == nil && configure != nil {
		err = configure(ctx, driver, found, hide)
	}
	if err != nil {
		driver.Close()
		return nil, err
	}
	return driver, nil
}

func (h *Host) connect(ctx context.Context, found Found) (*Driver, *redactor, error) {
	driver := &Driver{name: found.Name, Path: found.Path, Source: found.Source}
	hide := &redactor{}
	if found.Source == SourceReattach {
		running, err := h.running()
		if err != nil {
			return nil, nil, err
		}
		attached, client, err := attach(running[found.Name])
		if err != nil {
			return nil, nil, errNotReattached(found, err)
		}
		driver.link, driver.client = attached, client
		return driver, hide, nil
	}
	if found.Source == SourceDevOverride {
		h.warn(fmt.Sprintf("driver %s is replaced by the dev override %s", found.Name, found.Path))
	}
	started, client, err := h.launch(ctx, found, hide)
	if err != nil {
		return nil, nil, err
	}
	driver.link, driver.client = started, client
	return driver, hide, nil
}

// introduce asks a driver who it is.
func (h *Host) introduce(ctx context.Context, driver *Driver, found Found) error {
	info, err := call(ctx, driver, "get info", h.infoLimit, driver.client.Info)
	if err != nil {
		return h.explainInfo(ctx, found, err)
	}
	if info.Name != found.Name {
		return errWrongName(found, info.Name)
	}
	driver.Info = info
	return nil
}

// configure tells a driver what it has to know before the first call.
func (h *Host) configure(ctx context.Context, driver *Driver, found Found, hide *redactor) error {
	config := h.options.Drivers[found.Name]
	variables, secrets, err := h.environ.declared(driver.Info, config.Environment)
	if err != nil {
		return &StartError{
			Driver: found.Name, Path: found.Path, Reason: ReasonConfiguration, Cause: err,
			Message: fmt.Sprintf("the configuration of driver %s cannot be used: %s", found.Name, err),
			Hint:    fmt.Sprintf("`sandboxctl driver info %s` lists its variables", found.Name),
		}
	}
	hide.learn(append(secrets, h.environ.proxyPasswords()...))
	stateDir, err := h.driverStateDir(found.Name)
	if err != nil {
		return &StartError{
			Driver: found.Name, Path: found.Path, Reason: ReasonEnvironment, Cause: err,
			Message: fmt.Sprintf("driver %s has no place for its state: %s", found.Name, err),
			Hint:    "make the directory writable, or set SANDBOXCTL_STATE_DIR to one that is",
		}
	}
	driver.Warnings, err = call(ctx, driver, "configure", configureLimit, func(ctx context.Context) ([]string, error) {
		return driver.client.Configure(ctx, plugin.Config{
			HostVersion: h.options.Version,
			Settings:    config.Settings,
			Environment: variables,
			StateDir:    stateDir,
			Owner:       h.options.Owner,
		})
	})
	return err
}

// driverStateDir makes a driver's own directory, and makes it private again.
func (h *Host) driverStateDir(name string) (string, error) {
	if h.options.StateDir == "" {
		return "", nil
	}
	dir := filepath.Join(h.options.StateDir, "drivers", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		return dir, os.Chmod(dir, 0o700)
	}
	return dir, nil
}

// explainInfo says what a first question without an answer means.
func (h *Host) explainInfo(ctx context.Context, found Found, err error) error {
	var typed *plugin.Error
	var lost *plugin.ConnectionError
	switch {
	case ctx.Err() != nil:
		return err
	case found.Source == SourceReattach && errors.As(err, &lost):
		return errNotReattached(found, lost.Cause)
	case !errors.As(err, &typed):
		return err
	case typed.Kind == plugin.KindUnavailable:
		return errSlow(found, "say who it is", h.infoLimit, err)
	case typed.Kind == plugin.KindRefused:
		return errNotADriver(found, "it does not know sandboxctl's questions", err)
	}
	return err
}
