package modal

import (
	"context"
	"errors"
	"maps"
	"path"
	"strconv"
	"time"
	"unicode/utf8"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	// backstop is how much later than we the worker enforces a timeout, for the
	// case that this process dies. It kills the command alone, not its children,
	// and the SDK reports it in two ways at random, so ours has to come first.
	backstop = 30 * time.Second
	// exitLimit is how long a killed command may take to be reported as ended.
	exitLimit = 5 * time.Second
	// lifetimeGrace is how much longer than its lifetime a sandbox was seen to
	// live, with room to spare.
	lifetimeGrace = 60 * time.Second
	// maxArgv is how many bytes of arguments Modal takes.
	maxArgv = 64 << 10
)

// Exec runs a command directly, without a shell around it. Its timeout is kept
// here: when it has passed, everything the command has started is killed.
func (d *Driver) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	sb, h, err := d.open(ctx, ref)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	if d.isDestroyed(h.ModalID) {
		return plugin.ExitStatus{}, goneError(h.ModalID)
	}
	r := &run{driver: d, sandbox: sb, handle: h, request: request, stdio: stdio, mark: newMark()}
	r.limit, r.clamped = clamp(request.Timeout, h)
	if err := r.start(ctx); err != nil {
		return plugin.ExitStatus{}, err
	}
	return r.finish(ctx)
}

// run is one command from its start to its end.
type run struct {
	driver  *Driver
	sandbox *modalsdk.Sandbox
	handle  handle
	request *plugin.ExecRequest
	stdio   *plugin.ExecIO
	mark    mark

	// limit is the timeout in force, 0 for none; clamped says that it is shorter
	// than asked because the sandbox ends before.
	limit   time.Duration
	clamped bool

	process *modalsdk.ContainerProcess
	began   time.Time
	streams *streams
}

// clamp shortens a timeout to what is left of the sandbox's life.
func clamp(asked time.Duration, h handle) (limit time.Duration, clamped bool) {
	if asked <= 0 || h.Expires == 0 {
		return asked, false
	}
	left := time.Until(h.expires())
	if asked <= left {
		return asked, false
	}
	// A sandbox past its time is for Modal to refuse; 0 would mean no limit.
	return max(left.Truncate(time.Second), time.Second), true
}

func (r *run) start(ctx context.Context) error {
	argv, err := r.argv()
	if err != nil {
		return err
	}
	for name, value := range r.request.Env {
		if !utf8.ValidString(value) {
			return notText("the value of the variable %s", name)
		}
	}
	env := maps.Clone(r.request.Env)
	if env == nil {
		env = make(map[string]string, 1)
	}
	env[markName] = string(r.mark)
	workdir, err := r.workdir(ctx)
	if err != nil {
		return err
	}
	params := &modalsdk.SandboxExecParams{Env: env, PTY: r.request.TTY, Workdir: workdir}
	if r.limit > 0 {
		params.Timeout = wholeSeconds(r.limit) + backstop
	}
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	process, err := r.sandbox.Exec(starting, argv, params)
	if err != nil {
		return r.notStarted(ctx, err)
	}
	r.process, r.began = process, time.Now()
	if r.stdio.Started != nil {
		r.stdio.Started(r.applied())
	}
	return nil
}

// applied is the timeout in force where it is not the one asked for.
func (r *run) applied() time.Duration {
	if r.clamped {
		return r.limit
	}
	return 0
}

// argv is the command, below a shell that sets the terminal's first size where
// one is wanted: Modal's terminals are 24x80 and it has no call to change that.
func (r *run) argv() ([]string, error) {
	argv := r.request.Argv
	length := 0
	for _, arg := range argv {
		length += len(arg)
	}
	if length > maxArgv {
		return nil, plugin.Errorf(plugin.KindInvalid, "the command is %d bytes long, and Modal takes at most %d", length, maxArgv).
			WithHint("write it to a file in the sandbox and run that, or pass it on stdin")
	}
	for _, arg := range argv {
		if !utf8.ValidString(arg) {
			return nil, notText("an argument of the command")
		}
	}
	size := r.request.Size
	if !r.request.TTY || size.Rows == 0 || size.Cols == 0 {
		return argv, nil
	}
	const resized = `stty rows "$1" cols "$2" 2>/dev/null; shift 2; exec "$@"`
	return append([]string{"sh", "-c", resized, "sh", decimal(size.Rows), decimal(size.Cols)}, argv...), nil
}

// notText is about bytes that Modal's protocol cannot carry. It would fail in a way
// that looks as if the call might have been carried out.
func notText(what string, args ...any) error {
	return plugin.Errorf(plugin.KindInvalid, what+" is not valid UTF-8, and Modal takes nothing else", args...).
		WithHint("write it to a file in the sandbox, or pass it on stdin")
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// workdir is where the command runs. Modal takes absolute paths only; a relative
// one starts at the sandbox's working directory.
func (r *run) workdir(ctx context.Context) (string, error) {
	dir := r.request.Workdir
	if dir == "" || path.IsAbs(dir) {
		return dir, nil
	}
	return r.driver.absolute(ctx, r.sandbox, r.handle, dir)
}

func (r *run) notStarted(ctx context.Context, cause error) error {
	if isGone(cause) {
		return goneError(r.handle.ModalID)
	}
	if !mayHaveHappened(cause) {
		return classify(cause, "starting the command in the sandbox %s", r.handle.ModalID)
	}
	// It may run although nobody was told.
	r.kill(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	lost := plugin.Errorf(plugin.KindIndeterminate, "Modal did not say whether the command was started in the sandbox %s: %s", r.handle.ModalID, message(cause))
	lost.Cause = cause
	return lost
}

// ending is what the process's end was, as the SDK told it.
type ending struct {
	code int
	err  error
}

// finish carries the streams until the command has ended, and ends it when its
// time is up, when ctx ends, or when nobody takes its output any more.
func (r *run) finish(ctx context.Context) (plugin.ExitStatus, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.streams = r.carry(running)
	ended := make(chan ending, 1)
	go func() {
		code, err := r.process.Wait(running, nil)
		ended <- ending{code, err}
	}()
	timeUp, stopTimer := after(r.limit)
	defer stopTimer()
	lifeUp, stopLife := after(r.lifeLeft())
	defer stopLife()
	select {
	case end := <-ended:
		return r.ended(ctx, end, timeUp)
	case <-timeUp:
		return r.timedOut(ctx, ended)
	case <-lifeUp:
		r.streams.cut()
		return plugin.ExitStatus{}, goneError(r.handle.ModalID)
	case <-ctx.Done():
		survived := r.kill(ctx)
		r.streams.cut()
		return plugin.ExitStatus{SandboxTerminated: !survived}, ctx.Err()
	case err := <-r.streams.refused:
		r.kill(ctx)
		r.streams.cut()
		return plugin.ExitStatus{}, err
	}
}

// after is a timer that never fires for a duration of 0.
func after(d time.Duration) (<-chan time.Time, func() bool) {
	if d <= 0 {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(d)
	return timer.C, timer.Stop
}

// lifeLeft bounds the wait for a command whose sandbox has ended without the SDK
// noticing: it retries for ever.
func (r *run) lifeLeft() time.Duration {
	if r.handle.Expires == 0 {
		return 0
	}
	return max(time.Until(r.handle.expires()), 0) + lifetimeGrace
}

// timedOut kills the command and reports its end. Whether the sandbox outlives
// it depends on whether the time was the command's own.
func (r *run) timedOut(ctx context.Context, ended <-chan ending) (plugin.ExitStatus, error) {
	survived := r.kill(ctx)
	limit, stop := after(exitLimit)
	defer stop()
	select {
	case <-ended:
		r.streams.drainFor(exitLimit)
	case <-limit:
		r.streams.cut()
	}
	return r.timeoutStatus(survived && !r.clamped), nil
}

func (r *run) timeoutStatus(survived bool) plugin.ExitStatus {
	return plugin.ExitStatus{
		Code: 124, Reason: plugin.ExitTimedOut, SandboxTerminated: !survived, AppliedTimeout: r.applied(),
	}
}

// ended turns the process's end into a result.
func (r *run) ended(ctx context.Context, end ending, timeUp <-chan time.Time) (plugin.ExitStatus, error) {
	elapsed := time.Since(r.began)
	if end.err != nil {
		r.streams.cut()
		return r.unknownEnd(end.err)
	}
	stopped, lost := r.drain(ctx, timeUp)
	switch {
	case stopped == nil:
	case ctx.Err() != nil:
		return plugin.ExitStatus{SandboxTerminated: !stopped.survived}, ctx.Err()
	default:
		return r.timeoutStatus(stopped.survived && !r.clamped), nil
	}
	const killed = 137
	if r.limit > 0 && end.code == killed && elapsed >= r.limit-r.slack() {
		// The worker was first, or the sandbox ended with the command's time.
		return r.timeoutStatus(r.survived(ctx)), nil
	}
	status := exitStatus(end.code)
	status.AppliedTimeout = r.applied()
	if end.code > 128 {
		status.SandboxTerminated = !r.survived(ctx)
	}
	if lost != nil && !status.SandboxTerminated {
		return plugin.ExitStatus{}, r.lostOutput(end.code, lost)
	}
	return status, nil
}

// stopped is what became of a command whose output had to be ended.
type stopped struct{ survived bool }

// drain takes the rest of the output of a command that has ended. What it left
// behind may go on writing for ever, so its limits hold until the output has ended,
// too.
func (r *run) drain(ctx context.Context, timeUp <-chan time.Time) (_ *stopped, lost error) {
	drained := make(chan error, 1)
	go func() { drained <- r.streams.drain() }()
	select {
	case lost := <-drained:
		return nil, lost
	case <-timeUp:
	case <-ctx.Done():
	}
	survived := r.kill(ctx)
	if ctx.Err() != nil {
		r.streams.abandon()
	} else {
		defer time.AfterFunc(exitLimit, r.streams.abandon).Stop()
	}
	<-drained
	return &stopped{survived}, nil
}

// slack is how much before the limit a kill still counts as a timeout: none,
// unless it is the sandbox that ends, by a clock that is not ours.
func (r *run) slack() time.Duration {
	if r.clamped {
		return time.Second
	}
	return 0
}

// survived says whether the sandbox has outlived the command.
func (r *run) survived(ctx context.Context) bool {
	if r.clamped && time.Since(r.began) >= r.limit-r.slack() {
		return false // asking at this very moment would get a lie
	}
	return plugin.KindOf(r.driver.probe(context.WithoutCancel(ctx), r.sandbox)) != plugin.KindNotFound
}

func (r *run) lostOutput(code int, cause error) error {
	if plugin.KindOf(cause) == plugin.KindCanceled {
		return cause
	}
	lost := plugin.Errorf(plugin.KindIndeterminate, "the command ended with %d, but not all of its output arrived: %s", code, message(cause))
	lost.Cause = cause
	return lost
}

func (r *run) unknownEnd(cause error) (plugin.ExitStatus, error) {
	switch {
	case errors.As(cause, new(modalsdk.ExecTimeoutError)):
		return r.timeoutStatus(!r.clamped), nil
	case isGone(cause):
		return plugin.ExitStatus{}, goneError(r.handle.ModalID)
	}
	lost := plugin.Errorf(plugin.KindIndeterminate, "the end of the command in the sandbox %s is not known: %s", r.handle.ModalID, message(cause))
	lost.Cause = cause
	return plugin.ExitStatus{}, lost
}

// exitStatus reads a code as a shell would: the SDK reports a signal as 128+n,
// which is all there is to tell it by.
func exitStatus(code int) plugin.ExitStatus {
	if name, ok := signalNames[code-128]; ok {
		return plugin.ExitStatus{Code: code, Reason: plugin.ExitSignaled, Signal: name}
	}
	return plugin.Exited(code)
}

// signalNames are the signals that end processes, by their numbers on Linux.
var signalNames = map[int]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL",
	10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 24: "XCPU", 25: "XFSZ", 31: "SYS",
}
