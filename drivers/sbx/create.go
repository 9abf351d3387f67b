package sbx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// createAttempts is how often a create is tried that was rate-limited or met a name
// that a crash had left taken.
const createAttempts = 4

// agent is the built-in kit of sandboxes without a coding agent.
const agent = "shell"

// Create implements plugin.Driver. When it fails after events.Created, the SDK calls
// Destroy, which removes every name that was tried.
func (d *Driver) Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	p, err := d.program(ctx)
	if err != nil {
		return nil, err
	}
	if known, err := d.loadRecord(spec.ID); err == nil {
		return d.createAgain(ctx, known, spec)
	}
	resources, err := d.resources(spec)
	if err != nil {
		return nil, err
	}
	if err := d.checkNetwork(ctx, p, spec.Network); err != nil {
		return nil, err
	}
	slot, err := d.takeCreateSlot(ctx)
	if err != nil {
		return nil, err
	}
	rec, err := d.newRecord(spec)
	if err == nil {
		err = d.createBackend(ctx, p, rec, resources, events)
	}
	_ = slot.Unlock() // the lock ends with the process at the latest
	if err != nil {
		return nil, err
	}
	events.Progress(plugin.Progress{Message: "preparing the sandbox"})
	if err := d.prepare(ctx, p, rec, spec.Env); err != nil {
		return nil, err
	}
	if err := d.changeRecord(rec.ID, func(stored *record) { stored.Ready = true }); err != nil {
		return nil, plugin.Errorf(plugin.KindInternal, "cannot store the record of sandbox %s: %w", rec.ID, err)
	}
	if spec.Network.Mode == plugin.NetworkNone {
		events.Warn("sbx is known to let sandboxes reach services of this machine through host.docker.internal whatever the rules say (docker/sbx-releases#546)")
	}
	rec.Ready = true
	return rec.sandbox(entry{Name: rec.Sandbox, Status: "running"}), nil
}

// createAgain answers a create whose first answer was lost.
func (d *Driver) createAgain(ctx context.Context, known *record, spec *plugin.SandboxSpec) (*plugin.Sandbox, error) {
	if known.RequestID != spec.RequestID || spec.RequestID == "" {
		return nil, plugin.Errorf(plugin.KindConflict, "sandbox %s exists already", spec.ID)
	}
	if !known.Ready {
		return nil, plugin.Errorf(plugin.KindConflict, "sandbox %s is being created by another process, or its create was cut off", spec.ID).
			WithHint("If no other process is at it, remove it with sandboxctl rm or gc.")
	}
	return d.Inspect(ctx, plugin.Ref{ID: known.ID})
}

// resources are the arguments for the sandbox's size. Memory is always given: the
// default of sbx is half of the machine's.
func (d *Driver) resources(spec *plugin.SandboxSpec) ([]string, error) {
	memory := spec.MemoryBytes
	if memory == 0 {
		memory = d.settings.memoryBytes
	}
	args := []string{"--memory", fmt.Sprintf("%dm", (memory+1<<20-1)>>20)}
	if spec.CPUs != 0 {
		whole := int(spec.CPUs)
		if float64(whole) != spec.CPUs || whole < 1 {
			return nil, plugin.Refusedf("--cpus", "sbx gives a sandbox whole CPUs, and %v is not a whole number", spec.CPUs)
		}
		args = append(args, "--cpus", strconv.Itoa(whole))
	}
	if strings.ContainsRune(spec.Workdir, 0) {
		return nil, plugin.Errorf(plugin.KindInvalid, "the working directory %q holds a NUL byte", spec.Workdir)
	}
	return args, checkVariables(spec.Env)
}

// newRecord stores a record in a directory of the sandbox's own, beside the workspace
// that the guest gets.
func (d *Driver) newRecord(spec *plugin.SandboxSpec) (*record, error) {
	rec, err := d.makeRecord(spec)
	if err == nil {
		err = d.saveRecord(rec)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(d.recordDir(spec.ID)))
		return nil, plugin.Errorf(plugin.KindInternal, "cannot make the workspace and the record of sandbox %s: %w", spec.ID, err)
	}
	return rec, nil
}

func (d *Driver) makeRecord(spec *plugin.SandboxSpec) (*record, error) {
	workspace := filepath.Join(d.recordDir(spec.ID), workspaceDir)
	if err := os.MkdirAll(workspace, 0o700); err != nil {
		return nil, err
	}
	// sbx mounts the path that it is given; /tmp and /var are links on a Mac.
	resolved, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return nil, err
	}
	rec := &record{
		ID: spec.ID, RequestID: spec.RequestID, Sandbox: sandboxName(spec.ID, 0), Image: spec.Image, Labels: plugin.BackendLabels(spec),
		Network: spec.Network, Workspace: resolved, Workdir: spec.Workdir, HasEnv: len(spec.Env) > 0,
	}
	if rec.Image == "" {
		rec.Image = defaultImage
	}
	if rec.Workdir == "" {
		rec.Workdir = guestPath(resolved)
	}
	return rec, nil
}

// guestPath is where the guest finds a path of the host: the same, but that a
// Windows drive is a directory.
func guestPath(path string) string {
	if runtime.GOOS != "windows" || len(path) < 2 || path[1] != ':' {
		return path
	}
	return "/" + strings.ToLower(path[:1]) + filepath.ToSlash(path[2:])
}

// createBackend runs sbx create until it works or fails for good.
func (d *Driver) createBackend(ctx context.Context, p *program, rec *record, resources []string, events plugin.CreateEvents) error {
	for attempt := 0; ; attempt++ {
		// The name is known, and on disk, before anything carries it.
		if attempt > 0 {
			rec.Former = append(rec.Former, rec.Sandbox)
			rec.Sandbox = sandboxName(rec.ID, attempt)
			if err := d.saveRecord(rec); err != nil {
				return plugin.Errorf(plugin.KindInternal, "cannot store the record of sandbox %s: %w", rec.ID, err)
			}
		}
		events.Created([]byte(rec.Sandbox))
		events.Progress(plugin.Progress{Message: "creating a microVM from " + rec.Image})
		err := d.createOnce(ctx, p, rec, resources)
		kind := plugin.KindOf(err)
		if err == nil || kind != plugin.KindRateLimited && kind != plugin.KindConflict || attempt+1 == createAttempts {
			return err
		}
		pause := d.retryDelay << attempt
		if kind == plugin.KindRateLimited {
			events.Progress(plugin.Progress{Message: fmt.Sprintf("Docker Hub limits creates; trying again in %s", pause)})
		} else {
			pause = 0
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Driver) createOnce(ctx context.Context, p *program, rec *record, resources []string) error {
	args := append([]string{"create", "--quiet", "--name", rec.Sandbox, "--template", rec.Image}, resources...)
	if rec.Network.Mode == plugin.NetworkNone && p.features.DenyNetwork {
		args = append(args, "--deny-network", everywhere)
	}
	out, err := p.runWithin(ctx, d.settings.CreateTimeout, append(args, agent, rec.Workspace)...)
	if err != nil {
		return err
	}
	if out.code != 0 {
		return explain("create sandbox "+rec.ID, out.text())
	}
	entries, err := p.list(ctx)
	if err != nil {
		return err
	}
	if _, ok := entries[rec.Sandbox]; !ok {
		return plugin.Errorf(plugin.KindUnavailable, "sbx says that it created %s and does not list it", rec.Sandbox)
	}
	return nil
}

// envFile holds the sandbox's environment in the guest: sbx keeps none before 0.39,
// and later only what was in its arguments, where every user of the host sees it.
const envFile = "/etc/sandboxctl-env"

// Exit codes of the scripts of prepare; away from those of shells.
const (
	exitNoWorkspace = 91
	exitNoWorkdir   = 92
)

// prepare makes a new sandbox ready: its rules are set by the first exec, its
// workspace is there, its workdir exists and belongs to its user, its environment is
// stored.
func (d *Driver) prepare(ctx context.Context, p *program, rec *record, env map[string]string) error {
	const asUser = `test -d "$1" || exit 91; mkdir -p -- "$2" 2>/dev/null && test -w "$2" && exit 0; id -u; id -g; exit 92`
	status, said, err := d.runScript(ctx, p, rec, "", "", asUser, guestPath(rec.Workspace), rec.Workdir)
	switch {
	case err != nil:
		return err
	case status.Code == exitNoWorkspace:
		return plugin.Errorf(plugin.KindRefused, "sbx started sandbox %s without its workspace directory", rec.ID).
			WithHint("A mount policy of sbx or of your organisation is in the way: look at `sbx policy ls --type filesystem`.")
	case status.Code == exitNoWorkdir:
		owner := strings.Join(strings.Fields(said), ":")
		status, said, err = d.runScript(ctx, p, rec, "0", "", `mkdir -p -- "$1" && chown "$2" -- "$1"`, rec.Workdir, owner)
		if err != nil {
			return err
		}
	}
	if status.Code != 0 {
		return plugin.PathErrorf(rec.Workdir, plugin.PathOther, "cannot make the working directory %s in sandbox %s: %s", rec.Workdir, rec.ID, strings.TrimSpace(said))
	}
	if len(env) == 0 {
		return nil
	}
	status, said, err = d.runScript(ctx, p, rec, "0", exports(env), `umask 022; cat >"$1"`, envFile)
	if err != nil {
		return err
	}
	if status.Code != 0 {
		return plugin.Errorf(plugin.KindInternal, "cannot store the environment in sandbox %s: %s", rec.ID, strings.TrimSpace(said))
	}
	return nil
}

// Renew implements plugin.Renewer. sbx ends no sandbox by itself; the record tells
// every gc when one is due.
func (d *Driver) Renew(ctx context.Context, ref plugin.Ref, expires time.Time) (time.Time, error) {
	// The record outlives a sandbox that was removed with sbx itself.
	if _, err := d.Inspect(ctx, ref); err != nil {
		return time.Time{}, err
	}
	var kept time.Time
	err := d.changeRecord(ref.ID, func(rec *record) {
		sandbox, ours := plugin.SandboxFromLabels(rec.Labels)
		if !ours {
			return
		}
		rec.Labels = plugin.BackendLabels(&plugin.SandboxSpec{
			ID: sandbox.ID, Name: sandbox.Name, Owner: sandbox.Owner, Labels: sandbox.Labels, CreatedAt: sandbox.CreatedAt, ExpiresAt: expires,
		})
		if renewed, ours := plugin.SandboxFromLabels(rec.Labels); ours {
			kept = renewed.ExpiresAt
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, gone(ref)
	}
	if err != nil {
		return time.Time{}, plugin.Errorf(plugin.KindInternal, "cannot store the record of sandbox %s: %w", ref.ID, err)
	}
	return kept, nil
}
