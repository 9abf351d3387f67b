//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"golang.org/x/sys/unix"
)

var errTimedOut = errors.New("the command's time is over")

// options are what bwrap is told of a sandbox and a command. They are written to it and
// are no arguments, since other users of the machine see those and --env holds secrets.
func (d *driver) options(ref plugin.Ref, env map[string]string) []string {
	options := []string{
		"--unshare-all", "--die-with-parent", "--uid", "0", "--gid", "0", "--cap-drop", "ALL",
		"--bind", filepath.Join(d.state.Name(), ref.ID, "root"), "/", "--ro-bind", "/usr", "/usr",
		"--ro-bind-try", "/bin", "/bin", "--ro-bind-try", "/lib", "/lib", "--ro-bind-try", "/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", "/root",
	}
	for name, value := range env {
		options = append(options, "--setenv", name, value)
	}
	return options
}

// start starts bwrap. What is read from the pipe is, as JSON, that the command runs,
// and later its status.
func (d *driver) start(command *exec.Cmd, options []string) (status *os.File, err error) {
	status, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer tell.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return status, err
	}
	defer read.Close()
	command.ExtraFiles = []*os.File{tell, read}                                                           // its file descriptors 3 and 4
	go func() { _, _ = io.WriteString(write, strings.Join(options, "\x00")+"\x00"); _ = write.Close() }() // ends with bwrap
	return status, command.Start()
}

// Exec runs a command until it ends, its time is over, the caller gives up, or the
// sandbox is destroyed.
func (d *driver) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	dir, err := d.lock(ref.ID, unix.LOCK_SH)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	defer dir.Close()
	sandbox, err := d.sandbox(ref.ID)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The shell says 127 and 126 for what it cannot run, where bwrap would say 1.
	line := []string{"--json-status-fd", "3", "--args", "4", "/bin/sh", "-c", `cd "$0" || exit 126; exec "$@"`, cmp.Or(request.Workdir, sandbox.Workdir)}
	command := exec.CommandContext(running, "bwrap", append(line, request.Argv...)...)
	command.Env = []string{} // bwrap is the guest's first process, whose environment the guest can read
	command.Stdout, command.Stderr = stdio.Stdout, stdio.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // all of it ends with bwrap
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	stdin, err := command.StdinPipe() // with command.Stdin, Wait would wait for input that nobody reads
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	told, err := d.start(command, d.options(ref, request.Env))
	if told != nil {
		defer told.Close()
	}
	switch {
	case errors.Is(err, syscall.E2BIG):
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindTooLarge, "the command line is longer than Linux takes")
	case err != nil:
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindUnavailable, "bubblewrap does not start: %v", err).WithHint("install the package bubblewrap")
	}
	go func() { _, _ = io.Copy(stdin, stdio.Stdin); _ = stdin.Close() }() // ends with the call
	go d.endWithSandbox(running, ref.ID, end)
	if request.Timeout > 0 {
		defer time.AfterFunc(request.Timeout, func() { end(errTimedOut) }).Stop()
	}
	var status struct {
		ExitCode *int `json:"exit-code"`
	}
	reports := json.NewDecoder(told)
	if reports.Decode(&status) == nil && stdio.Started != nil { // not when plugin/posix runs a command for itself
		stdio.Started(0)
	}
	_ = command.Wait() // what it says is not the command's status; that comes next
	_ = reports.Decode(&status)
	switch cause := context.Cause(running); {
	case status.ExitCode != nil:
		return plugin.Exited(*status.ExitCode), nil
	case cause == errTimedOut:
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	case cause != nil:
		return plugin.ExitStatus{}, cause
	}
	return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInternal, "bubblewrap did not run the command; what it says is on stderr")
}

// endWithSandbox ends a command once its sandbox is not there any more. Destroy is
// another process and knows no command, so it is looked for.
func (d *driver) endWithSandbox(running context.Context, id string, end context.CancelCauseFunc) {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-running.Done():
			return
		case <-look.C:
		}
		if _, err := d.state.Lstat(filepath.Join(id, "sandbox.json")); errors.Is(err, fs.ErrNotExist) {
			end(plugin.NotFoundf("the sandbox %s was destroyed while the command ran", id))
			return
		}
	}
}
