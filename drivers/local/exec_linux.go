package local

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	// startLimit is how long a command may take to start.
	startLimit = 30 * time.Second
	// killLimit is how long the helper may take to kill a command's processes. The
	// host waits four seconds for a canceled command.
	killLimit = 2500 * time.Millisecond
	// codeTimedOut and codeKilled are the exit codes of commands that were ended, as
	// timeout(1) and shells have them.
	codeTimedOut = 124
	codeKilled   = 137
)

// Exec implements plugin.Driver.
func (d *Driver) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	found, known, done, err := d.use(ctx, ref)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	defer done()
	call, err := found.startCall(&guest.Request{Exec: guestExec(request, known)}, request.Stdin)
	if err != nil {
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInternal, "the command could not be handed to the sandbox %s: %w", found.id, err)
	}
	defer call.close()
	call.stdout.copyTo(stdio.Stdout, call.giveUp)
	call.stderr.copyTo(stdio.Stderr, call.giveUp)
	if request.Stdin {
		// It ends with the call or, where it waits for the host, when the SDK closes
		// what it reads after this method has returned.
		go func() {
			_, _ = io.CopyBuffer(writerOnly{call.stdin}, stdio.Stdin, make([]byte, copyBuffer))
			_ = call.stdin.Close()
		}()
	}
	run := &execution{driver: d, sandbox: found, record: known, call: call, request: request, stdio: stdio, kills: known.memoryKills()}
	return run.wait(ctx)
}

type writerOnly struct{ io.Writer }

// guestExec is the request in the helper's terms.
func guestExec(request *plugin.ExecRequest, known *record) *guest.Exec {
	env := map[string]string{"PATH": guestPath, "LANG": "C.UTF-8"}
	maps.Copy(env, known.imageEnvironment())
	maps.Copy(env, known.Spec.Env)
	maps.Copy(env, request.Env)
	exec := &guest.Exec{
		Workdir: []byte(known.workdir()),
		User:    request.User,
		TTY:     request.TTY,
		Rows:    uint16(min(request.Size.Rows, 1<<16-1)),
		Cols:    uint16(min(request.Size.Cols, 1<<16-1)),
		// What is left of the limit is for the helper itself.
		Processes: commandProcesses(known.Spec.PIDs),
	}
	if request.User == "" {
		exec.User = known.user()
	}
	if request.Workdir != "" {
		exec.Workdir = []byte(request.Workdir)
		if !path.IsAbs(request.Workdir) {
			exec.Workdir = []byte(known.workdir() + "/" + request.Workdir)
		}
	}
	for _, arg := range request.Argv {
		exec.Argv = append(exec.Argv, []byte(arg))
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		exec.Env = append(exec.Env, []byte(name+"="+env[name]))
	}
	return exec
}

// execution is a command on its way.
type execution struct {
	driver  *Driver
	sandbox sandbox
	record  *record
	call    *call
	request *plugin.ExecRequest
	stdio   *plugin.ExecIO
	// kills is how many processes had been killed for want of memory at the start.
	kills int
}

// wait follows the command to its end and brings the end about when it is time.
func (e *execution) wait(ctx context.Context) (plugin.ExitStatus, error) {
	var (
		canceled = ctx.Done()
		resize   = e.stdio.Resize
		signals  = e.stdio.Signals
		started  bool
		timedOut bool
		stuck    <-chan time.Time
	)
	deadline := time.NewTimer(startLimit)
	defer deadline.Stop()
	giveUp := func() {
		e.call.giveUp()
		canceled = nil
		stuck = time.After(killLimit)
	}
	for {
		select {
		case reply, ok := <-e.call.replies:
			switch {
			case !ok:
				return e.lost(ctx)
			case reply.Error != nil:
				return plugin.ExitStatus{}, execError(reply.Error)
			case reply.Exit != nil:
				return e.ended(ctx, reply.Exit, timedOut)
			case reply.Started && !started:
				started = true
				deadline.Stop()
				if e.request.Timeout > 0 {
					deadline.Reset(e.request.Timeout)
				}
				if e.stdio.Started != nil {
					e.stdio.Started(0)
				}
			}
		case <-deadline.C:
			if !started {
				return plugin.ExitStatus{}, plugin.Errorf(plugin.KindUnavailable, "the sandbox %s did not start the command within %s", e.sandbox.id, startLimit)
			}
			timedOut = true
			giveUp()
		case <-canceled:
			giveUp()
		case <-stuck:
			return e.terminate(ctx, timedOut)
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			e.tell(guest.Control{Resize: &guest.Size{Rows: uint16(size.Rows), Cols: uint16(size.Cols)}})
		case name, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			if number := unix.SignalNum("SIG" + strings.ToUpper(name)); number != 0 {
				e.tell(guest.Control{Signal: int(number)})
			}
		}
	}
}

// tell passes something on to a command that may have just ended.
func (e *execution) tell(message guest.Control) {
	if err := e.call.send(message); err != nil {
		e.driver.logger.Debug("a command was not told", "sandbox", e.sandbox.id, "error", err)
	}
}

// ended is the result of a command whose end the helper saw.
func (e *execution) ended(ctx context.Context, exit *guest.Exit, timedOut bool) (plugin.ExitStatus, error) {
	lastOutput := e.call.finishOutput()
	if exit.Killed && !timedOut && ctx.Err() != nil {
		return plugin.ExitStatus{}, ctx.Err()
	}
	if lastOutput != nil {
		return plugin.ExitStatus{}, fmt.Errorf("the command's output could not be passed on: %w", lastOutput)
	}
	switch {
	case exit.Killed:
		return plugin.ExitStatus{Code: codeTimedOut, Reason: plugin.ExitTimedOut}, nil
	case exit.Signal == int(unix.SIGKILL) && e.record.memoryKills() > e.kills:
		return plugin.ExitStatus{Code: exit.Code, Reason: plugin.ExitOOM}, nil
	case exit.Signal != 0:
		name := strings.TrimPrefix(unix.SignalName(unix.Signal(exit.Signal)), "SIG")
		return plugin.ExitStatus{Code: exit.Code, Reason: plugin.ExitSignaled, Signal: name}, nil
	}
	return plugin.Exited(exit.Code), nil
}

// terminate ends the sandbox, since nothing less has ended the command: a guest that
// does not even let the helper run is not left running.
func (e *execution) terminate(ctx context.Context, timedOut bool) (plugin.ExitStatus, error) {
	_ = e.call.finishOutput()
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := e.sandbox.kill(cleanup); err != nil {
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInternal, "neither the command nor its sandbox could be killed: %w", err)
	}
	if !timedOut {
		return plugin.ExitStatus{SandboxTerminated: true}, ctx.Err()
	}
	return plugin.ExitStatus{Code: codeTimedOut, Reason: plugin.ExitTimedOut, SandboxTerminated: true}, nil
}

// lost is what became of a command whose helper is gone without a word: most likely its
// sandbox is, too.
func (e *execution) lost(ctx context.Context) (plugin.ExitStatus, error) {
	_ = e.call.finishOutput()
	e.call.close()
	if ctx.Err() != nil {
		return plugin.ExitStatus{}, ctx.Err()
	}
	if !e.sandbox.dead(ctx) {
		if e.record.Spec.PIDs != 0 && strings.HasSuffix(e.call.failed(), refusedProcess) {
			return plugin.ExitStatus{}, plugin.Errorf(plugin.KindUnavailable, "the sandbox %s has as many processes as it may, so that the command was not started", e.sandbox.id).
				WithHint("remove the sandbox, and take a higher --pids where the processes are rightly there")
		}
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindIndeterminate, "the command in the sandbox %s was lost: %s", e.sandbox.id, e.call.failed()).
			WithHint("the sandbox still runs; a command must not kill processes that it did not start")
	}
	if e.record.memoryKills() > 0 {
		return plugin.ExitStatus{Code: codeKilled, Reason: plugin.ExitOOM, SandboxTerminated: true}, nil
	}
	return plugin.ExitStatus{}, plugin.NotFoundf("the sandbox %s ended while the command ran", e.sandbox.id)
}

// dead reports whether the sandbox's process ends within a moment: that its pipes are
// closed is seen before it is gone.
func (s sandbox) dead(ctx context.Context) bool {
	for range 50 {
		if s.pid() == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// execError puts what the helper could not do into the SDK's terms.
func execError(failure *guest.Error) error {
	switch failure.Reason {
	case guest.ReasonUser:
		return plugin.Errorf(plugin.KindInvalid, "%s", failure.Message).WithHint("name a user of the sandbox, or a number")
	default:
		return fileError(failure, 0)
	}
}
