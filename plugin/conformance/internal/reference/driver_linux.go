package reference

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/posix"
)

// Name is the driver's name.
const Name = "reference"

// Driver is the reference driver. Its state is in the directory that it is given, so
// that another process finds the same sandboxes.
type Driver struct {
	*posix.Files
	dir   string
	flaws flaws
}

// flaws are the defects that lie deep in the driver.
type flaws struct {
	sparesChildren, waitsForPipes, killsBackground, sharesNetwork, sharesTmp bool
}

// New returns the driver that is right.
func New() *Driver {
	d := &Driver{}
	d.Files = posix.New(d.Exec)
	return d
}

// Info implements plugin.Driver.
func (d *Driver) Info() plugin.Info {
	return plugin.Info{
		Name: Name, Version: "1", Description: "namespaces, to check the conformance suite with",
		Capabilities: plugin.Capabilities{
			Spec:      plugin.SpecSupport{Env: true, Workdir: true, Labels: true},
			Network:   plugin.NetworkSupport{None: true},
			Lease:     plugin.LeaseSupport{Unlimited: true},
			Exec:      plugin.ExecSupport{Stdin: true, Signals: true, User: true, SurvivesTimeout: true, Background: true},
			Files:     plugin.FileSupport{SymlinkWrite: plugin.SymlinkFollow},
			Isolation: "Linux namespaces",
		},
	}
}

// Configure implements plugin.Configurer.
func (d *Driver) Configure(_ context.Context, config plugin.Config) ([]string, error) {
	d.dir = config.StateDir
	return nil, nil
}

// Create implements plugin.Driver.
func (d *Driver) Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := d.load()
	if err != nil {
		return nil, err
	}
	for _, known := range all {
		if known.RequestID == spec.RequestID && known.alive() {
			events.Created([]byte(known.ID))
			return known.sandbox(), nil
		}
	}
	made := &record{ID: spec.ID, RequestID: spec.RequestID, Env: spec.Env, Workdir: spec.Workdir, Labels: plugin.BackendLabels(spec)}
	if made.Workdir == "" {
		made.Workdir = "/root"
	}
	events.Created([]byte(spec.ID))
	if err := d.boot(ctx, made); err != nil {
		return nil, err
	}
	return made.sandbox(), nil
}

// List implements plugin.Driver.
func (d *Driver) List(context.Context, plugin.ListRequest) (*plugin.SandboxList, error) {
	all, err := d.load()
	if err != nil {
		return nil, err
	}
	list := &plugin.SandboxList{}
	for _, known := range all {
		if known.alive() {
			list.Sandboxes = append(list.Sandboxes, known.sandbox())
		}
	}
	return list, nil
}

// Destroy implements plugin.Driver.
func (d *Driver) Destroy(ctx context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	known, err := d.find(ref)
	if plugin.KindOf(err) == plugin.KindNotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, d.remove(ctx, known)
}

// Renew implements plugin.Renewer.
func (d *Driver) Renew(_ context.Context, ref plugin.Ref, expires time.Time) (time.Time, error) {
	known, err := d.find(ref)
	if err != nil {
		return time.Time{}, err
	}
	known.renew(expires)
	return expires, d.save(known)
}

// record is a sandbox as it is kept in the state directory.
type record struct {
	ID        string            `json:"id"`
	RequestID string            `json:"request_id"`
	Env       map[string]string `json:"env"`
	Workdir   string            `json:"workdir"`
	Labels    map[string]string `json:"labels"`
	// PID is the sandbox's first process, StartTime tells it from a later one of
	// the same number.
	PID       int    `json:"pid"`
	StartTime string `json:"start_time"`
}

func (r *record) sandbox() *plugin.Sandbox {
	sandbox, _ := plugin.SandboxFromLabels(r.Labels)
	sandbox.Handle = []byte(r.ID)
	sandbox.State = plugin.StateRunning
	sandbox.Network.Mode = plugin.NetworkNone
	sandbox.Workdir = r.Workdir
	return sandbox
}

func (r *record) renew(expires time.Time) {
	kept, _ := plugin.SandboxFromLabels(r.Labels)
	r.Labels = plugin.BackendLabels(&plugin.SandboxSpec{
		ID: kept.ID, Name: kept.Name, Owner: kept.Owner, Labels: kept.Labels, CreatedAt: kept.CreatedAt, ExpiresAt: expires,
	})
}

func (r *record) encode() ([]byte, error) { return json.Marshal(r) }
