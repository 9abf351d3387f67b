//go:build unix

// Command sandboxctl-driver-minimal shows what a sandboxctl driver is made of. IT ISOLATES
// NOTHING: a command is an ordinary process of yours in a directory of its own. Run nothing
// in it that you would not run yourself; ../driver-bubblewrap is a driver that isolates.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/posix"
	"golang.org/x/sys/unix"
)

func main() {
	d := &driver{}
	d.Files = posix.New(d.Exec)
	plugin.Serve(d)
}

// driver keeps each sandbox as a directory: sandbox.json, and work, where commands run.
type driver struct {
	*posix.Files          // files and archives, made of Exec
	root         *os.Root // no id leads out of it
}

// Info claims only what is true. What it does not claim, such as --network none, is refused.
func (d *driver) Info() plugin.Info {
	return plugin.Info{
		Name: "minimal", Version: "1.0.0", Description: "Directories and plain processes; isolates nothing",
		Capabilities: plugin.Capabilities{
			Spec: plugin.SpecSupport{Labels: true}, Network: plugin.NetworkSupport{Open: true}, Lease: plugin.LeaseSupport{Unlimited: true},
			Exec: plugin.ExecSupport{Stdin: true, SurvivesTimeout: true}, Files: plugin.FileSupport{SymlinkWrite: plugin.SymlinkFollow},
			Isolation: "none: commands are processes of the user who runs sandboxctl",
		},
	}
}

// Configure is optional; this driver wants to know where its state goes.
func (d *driver) Configure(_ context.Context, config plugin.Config) (warnings []string, err error) {
	d.root, err = os.OpenRoot(config.StateDir)
	return nil, err
}

func (d *driver) Create(_ context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	events.Created([]byte(spec.ID)) // first: whatever fails from here on is cleaned up by Destroy
	sandbox := &plugin.Sandbox{
		ID: spec.ID, Handle: []byte(spec.ID), Name: spec.Name, Owner: spec.Owner, State: plugin.StateRunning, Labels: spec.Labels,
		CreatedAt: spec.CreatedAt, ExpiresAt: spec.ExpiresAt, Network: spec.Network, Workdir: filepath.Join(d.root.Name(), spec.ID, "work"),
	}
	content, err := json.Marshal(sandbox)
	return sandbox, errors.Join(err, d.root.MkdirAll(filepath.Join(spec.ID, "work"), 0o700),
		d.root.WriteFile(filepath.Join(spec.ID, "sandbox.json"), content, 0o600))
}

func (d *driver) sandbox(id string) (*plugin.Sandbox, error) {
	sandbox := &plugin.Sandbox{}
	content, err := d.root.ReadFile(filepath.Join(id, "sandbox.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, plugin.NotFoundf("there is no sandbox %s", id)
	} else if err == nil {
		err = json.Unmarshal(content, sandbox)
	}
	return sandbox, err
}

func (d *driver) List(context.Context, plugin.ListRequest) (*plugin.SandboxList, error) {
	list := &plugin.SandboxList{}
	entries, err := fs.ReadDir(d.root.FS(), ".")
	for _, entry := range entries {
		if sandbox, err := d.sandbox(entry.Name()); err == nil {
			list.Sandboxes = append(list.Sandboxes, sandbox)
		} else if plugin.KindOf(err) != plugin.KindNotFound { // being made or destroyed
			list.Warnings = append(list.Warnings, err.Error())
		}
	}
	return list, err
}

func (d *driver) Destroy(_ context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	_, err = d.root.Lstat(ref.ID)
	return errors.Is(err, fs.ErrNotExist), d.root.RemoveAll(ref.ID)
}

func (d *driver) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	sandbox, err := d.sandbox(ref.ID)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	limited, release := context.WithTimeout(ctx, cmp.Or(request.Timeout, math.MaxInt64))
	defer release()
	command := exec.CommandContext(limited, request.Argv[0], request.Argv[1:]...)
	command.Dir = cmp.Or(request.Workdir, sandbox.Workdir)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + sandbox.Workdir} // not the driver's own
	for name, value := range request.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Stdout, command.Stderr = stdio.Stdout, stdio.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the whole tree can be killed
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 200 * time.Millisecond // for a process left behind that holds stdout
	stdin, err := command.StdinPipe()          // with command.Stdin, Wait would wait for input that nobody reads
	if err == nil {
		err = command.Start()
	}
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return plugin.Exited(127), nil
	case err != nil:
		return plugin.Exited(126), nil
	}
	if stdio.Started != nil { // not when plugin/posix runs a command for itself
		stdio.Started(0)
	}
	go func() { _, _ = io.Copy(stdin, stdio.Stdin); _ = stdin.Close() }() // ends with the call, as does the next
	go func() {                                                           // Destroy is another process, so its work is looked for
		for gone := error(nil); gone == nil && limited.Err() == nil; _, gone = d.sandbox(ref.ID) {
			time.Sleep(100 * time.Millisecond)
		}
		release()
	}()
	_, _ = command.Wait(), command.Cancel() // a status that is not zero is a result, read below
	end := command.ProcessState.Sys().(syscall.WaitStatus)
	_, gone := d.sandbox(ref.ID)
	switch {
	case end.Signaled() && gone != nil:
		return plugin.ExitStatus{}, gone
	case ctx.Err() != nil:
		return plugin.ExitStatus{}, ctx.Err()
	case end.Signaled() && limited.Err() != nil:
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	case end.Signaled():
		return plugin.ExitStatus{Code: 128 + int(end.Signal()), Reason: plugin.ExitSignaled, Signal: strings.TrimPrefix(unix.SignalName(end.Signal()), "SIG")}, nil
	}
	return plugin.Exited(end.ExitStatus()), nil
}
