//go:build linux

// Command sandboxctl-driver-bubblewrap is a whole driver, the one that
// docs/writing-a-driver.md arrives at. Its backend is the program bwrap, which runs a
// command in namespaces of the Linux kernel: apart from the machine's files, processes
// and network, but on the machine's kernel, so that a hole in that is a way out.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/posix"
	"golang.org/x/sys/unix"
)

func main() {
	d := &driver{}
	d.Files = posix.New(d.Exec)
	plugin.Serve(d)
}

// driver keeps each sandbox as a directory: sandbox.json, and root, which commands see as /.
type driver struct {
	*posix.Files          // files and archives, made of Exec
	state        *os.Root // no id leads out of it
}

// Info claims only what is true. What it does not claim, such as --memory, is refused.
func (d *driver) Info() plugin.Info {
	return plugin.Info{
		Name: "bubblewrap", Version: "1.0.0", Description: "Linux namespaces, made by bubblewrap",
		Capabilities: plugin.Capabilities{
			Spec: plugin.SpecSupport{Labels: true}, Network: plugin.NetworkSupport{None: true}, Lease: plugin.LeaseSupport{Unlimited: true},
			Exec: plugin.ExecSupport{Stdin: true, SurvivesTimeout: true}, Files: plugin.FileSupport{SymlinkWrite: plugin.SymlinkFollow},
			Isolation: "Linux namespaces, on this machine's kernel",
		},
	}
}

// Configure is optional; this driver wants to know where its state goes.
func (d *driver) Configure(_ context.Context, config plugin.Config) (warnings []string, err error) {
	d.state, err = os.OpenRoot(config.StateDir)
	return nil, err
}

func (d *driver) Create(_ context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	events.Created([]byte(spec.ID)) // first: whatever fails from here on is cleaned up by Destroy
	sandbox := &plugin.Sandbox{
		ID: spec.ID, Handle: []byte(spec.ID), Name: spec.Name, Owner: spec.Owner, State: plugin.StateRunning, Labels: spec.Labels,
		CreatedAt: spec.CreatedAt, ExpiresAt: spec.ExpiresAt, Network: spec.Network, Workdir: "/workspace",
	}
	for _, dir := range []string{"etc", "root", "tmp", "workspace"} {
		if err := d.state.MkdirAll(filepath.Join(spec.ID, "root", dir), 0o700); err != nil {
			return nil, err
		}
	}
	accounts := []byte("root:x:0:0:root:/root:/bin/sh\n")
	if err := d.state.WriteFile(filepath.Join(spec.ID, "root/etc/passwd"), accounts, 0o644); err != nil {
		return nil, err
	}
	content, err := json.Marshal(sandbox)
	if err != nil {
		return nil, err
	}
	return sandbox, d.state.WriteFile(filepath.Join(spec.ID, "sandbox.json"), content, 0o600)
}

func (d *driver) sandbox(id string) (*plugin.Sandbox, error) {
	sandbox := &plugin.Sandbox{}
	content, err := d.state.ReadFile(filepath.Join(id, "sandbox.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, plugin.NotFoundf("there is no sandbox %s", id)
	} else if err == nil {
		err = json.Unmarshal(content, sandbox)
	}
	return sandbox, err
}

func (d *driver) List(context.Context, plugin.ListRequest) (*plugin.SandboxList, error) {
	list := &plugin.SandboxList{}
	entries, err := fs.ReadDir(d.state.FS(), ".")
	for _, entry := range entries {
		if sandbox, err := d.sandbox(entry.Name()); err == nil {
			list.Sandboxes = append(list.Sandboxes, sandbox)
		} else if plugin.KindOf(err) != plugin.KindNotFound { // being made or destroyed
			list.Warnings = append(list.Warnings, err.Error())
		}
	}
	return list, err
}

// lock opens a sandbox's directory and locks it until it is closed: shared by commands,
// not shared by Destroy, which thereby waits for them.
func (d *driver) lock(id string, how int) (*os.File, error) {
	dir, err := d.state.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, plugin.NotFoundf("there is no sandbox %s", id)
	} else if err != nil {
		return nil, err
	}
	return dir, unix.Flock(int(dir.Fd()), how)
}

// Destroy takes the sandbox away from List, from new commands and from those that run,
// which end by that; see Exec.
func (d *driver) Destroy(_ context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	if err := d.state.Remove(filepath.Join(ref.ID, "sandbox.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	dir, err := d.lock(ref.ID, unix.LOCK_EX)
	if plugin.KindOf(err) == plugin.KindNotFound {
		return true, nil
	} else if err != nil {
		return false, err
	}
	defer dir.Close()
	return false, d.state.RemoveAll(ref.ID)
}
