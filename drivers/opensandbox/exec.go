package opensandbox

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	// stdinFrame is how much stdin is sent at a time; the next frame waits until the command has room for it.
	stdinFrame = 256 << 10
	// overdue is how long after its deadline and the kill that follows a command's end may still be told.
	overdue = 5 * time.Second
	// cleanupLimit bounds the killing of a command whose caller has gone.
	cleanupLimit = 5 * time.Second
)

// Exec runs a command with exact bytes on all channels, see script.go for the way.
func (d *Driver) Exec(ctx context.Context, ref plugin.Ref, req *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	token := newToken()
	text, err := program{token: token, request: req}.text()
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	if len(text) > maxProgram {
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInvalid, "the command with its environment has %d bytes, more than can be sent", len(text)).
			WithHint("write it to a file in the sandbox first")
	}
	box, err := d.resolve(ctx, ref)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	x, err := d.execd(ctx, box)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	command := bootstrap
	if req.TTY {
		command = strings.ReplaceAll(terminalBootstrap, "@TOKEN@", token)
	}
	s, err := x.openSession(ctx, command, req.TTY)
	if err != nil {
		return plugin.ExitStatus{}, d.whyUnreachable(ctx, box, err)
	}
	r := newRun(d, box, x, s, req, stdio)
	return r.to(ctx, token, []byte(text))
}

// run is one command under way.
type run struct {
	driver *Driver
	box    boxRef
	execd  *execd
	s      *session
	req    *plugin.ExecRequest
	stdio  *plugin.ExecIO
	spool  *spool

	started chan int      // the command's process group
	ready   chan struct{} // a terminal takes the program
	acks    chan struct{} // a frame of stdin was taken
	flow    chan bool     // true: stop the command

	timedOut bool   // the guest's watchdog has fired; the reader's until ended is closed
	marks    int    // end marks seen
	status   int    // of the end mark
	dirError string // the program could not enter the directory
	ended    chan struct{}
	lost     error // why the reader ended without an end mark
}

func newRun(d *Driver, box boxRef, x *execd, s *session, req *plugin.ExecRequest, stdio *plugin.ExecIO) *run {
	r := &run{
		driver: d, box: box, execd: x, s: s, req: req, stdio: stdio,
		started: make(chan int, 1), ready: make(chan struct{}, 1), acks: make(chan struct{}, 1),
		flow: make(chan bool, 1), ended: make(chan struct{}),
	}
	r.spool = newSpool(func(stop bool) {
		// Only the latest wish counts.
		select {
		case <-r.flow:
		default:
		}
		r.flow <- stop
	})
	return r
}

// to runs the program to the command's end and leaves nothing behind in the sandbox.
func (r *run) to(ctx context.Context, token string, text []byte) (plugin.ExitStatus, error) {
	connCtx, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { r.read(connCtx, token) })
	tasks.Go(r.deliver)
	tasks.Go(func() { r.watchConnection(connCtx, disconnect) })

	group, err := r.start(ctx, text)
	if err == nil {
		tasks.Go(func() { r.throttle(connCtx, group) })
		tasks.Go(func() { r.forward(connCtx, group) })
		go r.feed(connCtx) // ends when the caller closes its stdin, at the latest when Exec has returned
		err = r.wait(ctx)
	}
	status, err := r.conclude(ctx, group, err)
	disconnect()
	_ = r.s.conn.CloseNow()
	r.spool.close(err != nil)
	tasks.Wait()
	return status, err
}

// start sends the program and waits until the command runs.
func (r *run) start(ctx context.Context, text []byte) (group int, err error) {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	if r.req.TTY {
		if r.s.resize(ctx, r.req.Size) != nil {
			return 0, r.brokenConnection(ctx)
		}
		select {
		case <-r.ready:
		case <-r.ended:
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-limit.C:
			return 0, errNotStarted
		}
	}
	if r.s.sendProgram(ctx, text) != nil {
		return 0, r.brokenConnection(ctx)
	}
	select {
	case group = <-r.started:
		if r.stdio.Started != nil {
			r.stdio.Started(0)
		}
		return group, nil
	case <-r.ended:
		return r.groupIfKnown(), nil
	case <-ctx.Done():
		// Knowing what to kill is worth a moment.
		select {
		case group = <-r.started:
		case <-r.ended:
		case <-time.After(time.Second):
		}
		return group, ctx.Err()
	case <-limit.C:
		return 0, errNotStarted
	}
}

var errNotStarted = plugin.Errorf(plugin.KindIndeterminate,
	"execd accepted the command but did not start it within %s; it may or may not have run", startLimit)

// brokenConnection lets the reader find out what happened to a connection that cannot be written to.
func (r *run) brokenConnection(ctx context.Context) error {
	_ = r.s.conn.CloseNow()
	<-r.ended
	return ctx.Err()
}

func (r *run) groupIfKnown() int {
	select {
	case group := <-r.started:
		if r.stdio.Started != nil {
			r.stdio.Started(0)
		}
		return group
	default:
		return 0
	}
}

// wait returns at the command's end, the caller's, or when the guest's watchdog has evidently failed.
func (r *run) wait(ctx context.Context) error {
	var late <-chan time.Time
	if r.req.Timeout > 0 {
		t := time.NewTimer(r.req.Timeout + killGrace + overdue)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late:
		return errOverdue
	}
}

var errOverdue = errors.New("the command's end was not told")

// conclude makes the result, after killing what must not go on and ending the session.
func (r *run) conclude(ctx context.Context, group int, err error) (plugin.ExitStatus, error) {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	whole := err == nil && r.complete()
	var killed error
	if !whole && group != 0 {
		if killed = r.execd.signal(clean, "KILL", group); errors.Is(killed, errNotRunning) {
			killed = nil
		}
	}
	if e := r.execd.endSession(clean, r.s.id); e != nil {
		r.driver.logger.Warn("the session could not be ended", "error", e)
	}
	switch {
	case err == nil && r.dirError != "":
		return plugin.ExitStatus{}, r.directoryError()
	case whole:
		return r.exitStatus(), nil
	case errors.Is(err, errOverdue) && killed != nil:
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindIndeterminate,
			"the time of the command in sandbox %s is up, but its end was not told, and it could not be killed: %w", r.box.ID, killed).
			WithHint("it may still be running, for instance when the sandbox is paused")
	case errors.Is(err, errOverdue):
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	case err != nil:
		return plugin.ExitStatus{}, err
	case r.timedOut && r.req.TTY:
		// The deadline's kill took the program along.
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	}
	return r.lostStatus(ctx, group, killed)
}

// complete reports whether the end of every channel was marked, so that all output is here.
func (r *run) complete() bool {
	select {
	case <-r.ended:
		return r.lost == nil
	default:
		return false
	}
}

func (r *run) exitStatus() plugin.ExitStatus {
	if r.timedOut {
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}
	}
	return plugin.Exited(r.status)
}

func (r *run) directoryError() error {
	dir := r.req.Workdir
	if dir == "" {
		dir = r.box.Workdir
	}
	reason, text := plugin.PathMissing, "it does not exist"
	switch r.dirError {
	case "p":
		reason, text = plugin.PathPermission, "permission denied"
	case "n":
		reason, text = plugin.PathNotDirectory, "it is not a directory"
	}
	return plugin.PathErrorf(dir, reason, "cannot run the command in %q: %s", dir, text)
}
