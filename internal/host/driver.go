package host

import (
	"context"
	"io"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Limits of the calls that have one answer. Exec and the transfer of contents take
// as long as they take; there the caller's context decides.
const (
	// infoLimit: GetInfo uses no network and no credentials.
	infoLimit = 5 * time.Second
	// configureLimit leaves time for a login.
	configureLimit = 30 * time.Second
	// healthLimit is for somebody who looks at the screen while several services
	// are tried.
	healthLimit = 30 * time.Second
	// lookLimit is for reading what exists; backends retry within it.
	lookLimit = 60 * time.Second
	// fileLimit is for a single file's facts or a directory's entries, which some
	// backends only get by running a command in the sandbox.
	fileLimit = 60 * time.Second
	// changeLimit is for Destroy and Renew: a stop with a grace period, then the
	// deletion.
	changeLimit = 2 * time.Minute
	// createLimit is for the slowest create, which pulls a large image; only a
	// driver that hangs reaches it.
	createLimit = 30 * time.Minute
)

// Driver is a running driver. Its methods are plugin.Client's, with a deadline on
// each call that has one answer; they may be called concurrently. Their errors are
// an *plugin.Error, a *CrashError when the process ended, a *plugin.ConnectionError
// when the answer was lost otherwise, or the end of the context.
type Driver struct {
	// Info is what the driver says of itself.
	Info plugin.Info
	// Path is the executable, or the address of a driver that ran already.
	Path   string
	Source Source
	// Warnings are the driver's own, from its configuration.
	Warnings []string

	name   string
	client *plugin.Client
	calls  callCounter
	link   link
}

// Name is the driver's name.
func (d *Driver) Name() string { return d.name }

// PID is the driver's process, or zero for one that this host did not start.
func (d *Driver) PID() int { return d.link.pid() }

// Create makes a sandbox; see plugin.Client.
func (d *Driver) Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	return call(ctx, d, "create", createLimit, func(ctx context.Context) (*plugin.Sandbox, error) {
		return d.client.Create(ctx, spec, events)
	})
}

// List lists every live sandbox that is sandboxctl's.
func (d *Driver) List(ctx context.Context, request plugin.ListRequest) (*plugin.SandboxList, error) {
	return call(ctx, d, "list", lookLimit, func(ctx context.Context) (*plugin.SandboxList, error) {
		return d.client.List(ctx, request)
	})
}

// Inspect looks at one sandbox.
func (d *Driver) Inspect(ctx context.Context, ref plugin.Ref) (*plugin.Sandbox, error) {
	return call(ctx, d, "inspect", lookLimit, func(ctx context.Context) (*plugin.Sandbox, error) {
		return d.client.Inspect(ctx, ref)
	})
}

// Destroy removes a sandbox; alreadyGone says that there was none.
func (d *Driver) Destroy(ctx context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	return call(ctx, d, "destroy", changeLimit, func(ctx context.Context) (bool, error) {
		return d.client.Destroy(ctx, ref)
	})
}

// AccessLog returns what a sandbox's network let through and refused.
func (d *Driver) AccessLog(ctx context.Context, ref plugin.Ref) ([]plugin.Access, error) {
	return call(ctx, d, "read the access log", lookLimit, func(ctx context.Context) ([]plugin.Access, error) {
		return d.client.AccessLog(ctx, ref)
	})
}

// Renew moves a sandbox's expiry, zero for none, and returns it as the backend keeps it.
func (d *Driver) Renew(ctx context.Context, ref plugin.Ref, expires time.Time) (time.Time, error) {
	return call(ctx, d, "renew", changeLimit, func(ctx context.Context) (time.Time, error) {
		return d.client.Renew(ctx, ref, expires)
	})
}

// Exec runs a command; see plugin.Client. It has no deadline of its own.
func (d *Driver) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	return call(ctx, d, "exec", 0, func(ctx context.Context) (plugin.ExitStatus, error) {
		return d.client.Exec(ctx, ref, request, stdio)
	})
}

// CheckHealth asks what is wrong with the backend.
func (d *Driver) CheckHealth(ctx context.Context) ([]plugin.Check, error) {
	return call(ctx, d, "check health", healthLimit, func(ctx context.Context) ([]plugin.Check, error) {
		return d.client.CheckHealth(ctx)
	})
}

// Stat describes a path in a sandbox; with follow, what a symbolic link points to.
func (d *Driver) Stat(ctx context.Context, ref plugin.Ref, path string, follow bool) (plugin.FileInfo, error) {
	return call(ctx, d, "stat", fileLimit, func(ctx context.Context) (plugin.FileInfo, error) {
		return d.client.Stat(ctx, ref, path, follow)
	})
}

// ReadDir returns the entries of a directory in a sandbox.
func (d *Driver) ReadDir(ctx context.Context, ref plugin.Ref, path string) ([]plugin.FileInfo, error) {
	return call(ctx, d, "read directory", fileLimit, func(ctx context.Context) ([]plugin.FileInfo, error) {
		return d.client.ReadDir(ctx, ref, path)
	})
}

// ReadFile writes a file's content to w. It has no deadline of its own.
func (d *Driver) ReadFile(ctx context.Context, ref plugin.Ref, path string, maxBytes int64, w io.Writer) error {
	return d.transfer(ctx, "read file", func(ctx context.Context) error {
		return d.client.ReadFile(ctx, ref, path, maxBytes, w)
	})
}

// WriteFile replaces a file's content with what r gives. It has no deadline of its own.
func (d *Driver) WriteFile(ctx context.Context, ref plugin.Ref, path string, mode uint32, r io.Reader) error {
	return d.transfer(ctx, "write file", func(ctx context.Context) error {
		return d.client.WriteFile(ctx, ref, path, mode, r)
	})
}

// GetArchive writes a tar stream of the entry at path to w. It has no deadline of its own.
func (d *Driver) GetArchive(ctx context.Context, ref plugin.Ref, path string, follow bool, w io.Writer) error {
	return d.transfer(ctx, "get archive", func(ctx context.Context) error {
		return d.client.GetArchive(ctx, ref, path, follow, w)
	})
}

// PutArchive extracts a tar stream into a directory. It has no deadline of its own.
func (d *Driver) PutArchive(ctx context.Context, ref plugin.Ref, dir string, r io.Reader) error {
	return d.transfer(ctx, "put archive", func(ctx context.Context) error {
		return d.client.PutArchive(ctx, ref, dir, r)
	})
}

// Close ends the driver's process and removes its socket; one that ran already is
// only let go. Calls under way get the SDK's time to clean up, two seconds at most;
// without any, the process is killed at once. It may be called more than once.
func (d *Driver) Close() { d.link.close(d.calls.unfinished()) }

func (d *Driver) transfer(ctx context.Context, name string, do func(context.Context) error) error {
	_, err := call(ctx, d, name, 0, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}
