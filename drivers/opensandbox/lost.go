package opensandbox

import (
	"context"
	"errors"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// lostStatus explains a command whose end was not told: the connection broke, the sandbox ended, or the program
// around the command was killed.
func (r *run) lostStatus(ctx context.Context, group int, killed error) (plugin.ExitStatus, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unaryTimeout)
	defer cancel()
	var end processEnd
	if errors.As(r.lost, &end) {
		return r.programEnded(group, end)
	}
	var daemon daemonError
	if errors.As(r.lost, &daemon) && group == 0 && daemon.code == "START_FAILED" {
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindRefused, "commands cannot be run in this sandbox: %w", daemon).
			WithHint("its image needs a shell; execd older than 1.1 needs bash for it")
	}
	record, err := r.driver.server.get(ctx, r.box.ID)
	switch {
	case plugin.KindOf(err) == plugin.KindNotFound:
		return plugin.ExitStatus{}, plugin.NotFoundf("sandbox %s ended while the command ran in it: it was removed or its time was up", r.box.ID)
	case err == nil && ended(record):
		return plugin.ExitStatus{}, plugin.NotFoundf("sandbox %s ended while the command ran in it: %s", r.box.ID, stateText(record))
	}
	lost := plugin.Errorf(plugin.KindIndeterminate, "the connection to the command was lost while it ran: %w", r.lost)
	switch {
	case group == 0:
		lost.Hint = "it may not have started at all"
	case killed == nil:
		lost.Hint = "the command has been killed; what it had done until then stays"
	default:
		lost.Hint = "the command may still be running"
	}
	return plugin.ExitStatus{}, lost
}

// programEnded: the process that execd started is gone. Before the command ran it lacked a tool; afterwards
// something in the sandbox has killed it.
func (r *run) programEnded(group int, end processEnd) (plugin.ExitStatus, error) {
	if group == 0 {
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindRefused, "commands cannot be run in this sandbox: %w", end).
			WithHint("its image needs a POSIX shell and dd with iflag=fullblock (coreutils or busybox), and stty for a terminal")
	}
	if r.req.TTY && end.code < 0 {
		// On a terminal the command shares the process group, and so the signal.
		return plugin.ExitStatus{Code: 128 + 9, Reason: plugin.ExitSignaled, Signal: "KILL"}, nil
	}
	return plugin.ExitStatus{}, plugin.Errorf(plugin.KindIndeterminate, "the command's end is not known: %w", end).
		WithHint("something in the sandbox killed it, perhaps for lack of memory")
}

// whyUnreachable says more about an execd that does not answer, from what the server knows about the sandbox.
func (d *Driver) whyUnreachable(ctx context.Context, box boxRef, err error) error {
	if kind := plugin.KindOf(err); kind != plugin.KindUnavailable && kind != plugin.KindNotFound && kind != plugin.KindInternal {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	record, e := d.server.get(ctx, box.ID)
	switch {
	case plugin.KindOf(e) == plugin.KindNotFound:
		return asGone(box.ID, e)
	case e != nil:
		return err
	case stateOf(record) == plugin.StatePaused:
		return plugin.Errorf(plugin.KindConflict, "sandbox %s is paused, nothing can be run in it", box.ID).
			WithHint("resume it with the server's own client: osb sandbox resume %s", box.ID)
	case ended(record):
		return plugin.NotFoundf("sandbox %s has ended: %s", box.ID, stateText(record))
	}
	return err
}
