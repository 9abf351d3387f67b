package sbx

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// The driver's patience with an exec. A deadline of the command itself is kept in
// the guest; the driver steps in when the guest does not.
const (
	startLimit    = 2 * time.Minute           // until the guest says that it is there; a stopped one has to boot
	overdueLimit  = killGrace + 5*time.Second // after the command's deadline
	endLimit      = 2 * time.Second           // for sbx to end after the command has
	killLimit     = 800 * time.Millisecond    // for the supervisor to kill the command
	killExecLimit = 1200 * time.Millisecond   // for a second exec to do it
	stopLimit     = 2 * time.Second           // for sbx stop, which always does it
)

// Exec implements plugin.Driver.
func (d *Driver) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	rec, err := d.find(ref)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	if err := checkVariables(request.Env); err != nil {
		return plugin.ExitStatus{}, err
	}
	if strings.ContainsRune(strings.Join(request.Argv, "")+request.Workdir, 0) {
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInvalid, "an argument or the working directory of the command holds a NUL byte")
	}
	p, err := d.program(ctx)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	if request.TTY {
		return d.onTerminal(ctx, p, rec, request, stdio)
	}
	return d.supervised(ctx, p, rec, request, stdio, true)
}

// runScript runs a short shell program of the driver's own, in / and without the
// sandbox's environment. It returns what the program printed.
func (d *Driver) runScript(ctx context.Context, p *program, rec *record, user, stdin, script string, args ...string) (plugin.ExitStatus, string, error) {
	var said beginning
	status, err := d.supervised(ctx, p, rec, &plugin.ExecRequest{
		Argv: append([]string{"sh", "-c", script, "sandboxctl"}, args...), User: user, Workdir: "/", Stdin: stdin != "", Timeout: d.settings.CallTimeout,
	}, &plugin.ExecIO{Stdin: strings.NewReader(stdin), Stdout: &said, Stderr: &said}, false)
	if err == nil && status.Reason == plugin.ExitTimedOut {
		err = plugin.Errorf(plugin.KindUnavailable, "sandbox %s did not answer within %s", rec.ID, d.settings.CallTimeout)
	}
	return status, said.String(), err
}

// beginning keeps the first words of a guest, which decides how many there are.
type beginning struct{ bytes.Buffer }

const beginningLimit = 64 << 10

func (b *beginning) Write(data []byte) (int, error) {
	b.Buffer.Write(data[:min(len(data), beginningLimit-b.Len())])
	return len(data), nil
}

// supervised runs a command under the supervisor.
func (d *Driver) supervised(ctx context.Context, p *program, rec *record, request *plugin.ExecRequest, stdio *plugin.ExecIO, withEnv bool) (plugin.ExitStatus, error) {
	s, err := d.begin(ctx, p, rec, request.User, stdio)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	defer s.close()
	if boot := s.boot; d.bootOf(rec.ID) != boot {
		if err := d.enforce(ctx, p, rec); err != nil {
			return plugin.ExitStatus{}, err
		}
		if err := d.setBoot(rec.ID, boot); err != nil {
			return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInternal, "cannot store what sandbox %s was set to: %w", rec.ID, err)
		}
	}
	timeout := wholeSeconds(request.Timeout)
	if stdio.Started != nil {
		stdio.Started(applied(request.Timeout, timeout))
	}
	s.feed(plan(rec, request, timeout, withEnv), request, stdio)
	status, err := d.awaitEnd(ctx, p, rec, s, timeout)
	status.AppliedTimeout = applied(request.Timeout, timeout)
	return status, err
}

// begin starts the supervisor in the guest, where it waits: nothing of the command has
// been sent, so nothing of it runs. A sandbox that stops just when an exec comes, as idle
// ones do, ends the exec's stream; another exec starts it again.
func (d *Driver) begin(ctx context.Context, p *program, rec *record, user string, stdio *plugin.ExecIO) (*session, error) {
	for attempt := 1; ; attempt++ {
		s, err := startSession(p, rec, user, stdio)
		if err != nil {
			return nil, plugin.Errorf(plugin.KindUnavailable, "cannot run %s: %w", p.path, err)
		}
		if err = s.awaitStart(ctx); err == nil {
			return s, nil
		}
		again := err == errNoAnswer && attempt == 1 && strings.Contains(s.noise(), cutStream)
		if !again {
			err = d.whyNotStarted(ctx, p, rec, s, err)
		}
		s.close()
		if !again {
			return nil, err
		}
	}
}

func applied(asked, timeout time.Duration) time.Duration {
	if asked == timeout {
		return 0
	}
	return timeout
}

// awaitEnd waits for the supervisor's report, and kills the command when the context
// ends or the guest is overdue.
func (d *Driver) awaitEnd(ctx context.Context, p *program, rec *record, s *session, timeout time.Duration) (plugin.ExitStatus, error) {
	var overdue <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout + overdueLimit)
		defer timer.Stop()
		overdue = timer.C
	}
	select {
	case <-s.ended:
		return s.result(rec)
	case <-s.exited:
		// The last words may have come with the end of the process.
		if s.hasEnded() {
			return s.result(rec)
		}
		return plugin.ExitStatus{}, d.lost(ctx, p, rec, s)
	case <-s.failed:
		_ = d.kill(ctx, p, rec, s) // it logs what goes wrong
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindCanceled, "the output of the command in sandbox %s is not read any more", rec.ID)
	case <-ctx.Done():
		_ = d.kill(ctx, p, rec, s)
		return s.status(), ctx.Err()
	case <-overdue:
		if err := d.kill(ctx, p, rec, s); err != nil {
			return plugin.ExitStatus{}, notKilled(rec, err)
		}
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	}
}

// kill ends a running command and all that it started: through the supervisor; if
// that cannot hear, because the command does not read its stdin, by a second exec;
// and at last by stopping the sandbox, which keeps its files and starts again when
// it is needed. Killing the sbx process alone leaves the command running.
func (d *Driver) kill(ctx context.Context, p *program, rec *record, s *session) error {
	ctx = context.WithoutCancel(ctx)
	s.senders.Go(func() { s.send([]byte("k\n")) })
	if s.endsWithin(killLimit) {
		return nil
	}
	err := d.killByExec(ctx, p, rec, "sbx_me="+s.supervisor+"\nkill_command")
	s.endsWithin(killLimit) // so that the supervisor hears that it may go
	return err
}

// notKilled is a command whose time is up and that goes on for all that is known.
func notKilled(rec *record, err error) *plugin.Error {
	return plugin.Errorf(plugin.KindIndeterminate, "the time of the command in sandbox %s is up, but its end was not told, and it could not be killed: %w", rec.ID, err).
		WithHint("It may still be running. `sbx stop %s` ends it.", rec.Sandbox)
}

// killByExec kills by a second exec, or by stopping the sandbox.
func (d *Driver) killByExec(ctx context.Context, p *program, rec *record, kill string) error {
	out, err := p.runWithin(ctx, killExecLimit, "exec", "-u", "0", "-w", "/", rec.Sandbox, "sh", "-c", treeScript+kill)
	if err == nil && out.code == 0 {
		return nil
	}
	out, err = p.runWithin(ctx, stopLimit, "stop", rec.Sandbox)
	if err == nil && out.code != 0 {
		err = explain("stop sandbox "+rec.ID, out.text())
	}
	if err != nil {
		d.logger().Warn("could not stop a sandbox whose command had to be killed", "sandbox", rec.Sandbox, "error", err)
	}
	return err
}

// whyNotStarted explains an exec that the guest did not answer. The exit code of sbx
// is 1 for everything, and a command's may be, too: whether the sandbox is there
// decides, and then what was printed (docker/sbx-releases#504).
func (d *Driver) whyNotStarted(ctx context.Context, p *program, rec *record, s *session, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cause != errNoAnswer {
		return cause
	}
	entries, err := p.list(ctx)
	if err != nil {
		return err
	}
	if _, exists := entries[rec.Sandbox]; !exists {
		return gone(plugin.Ref{ID: rec.ID})
	}
	return explain("run a command in sandbox "+rec.ID, s.noise())
}

// lost explains an exec that ended without the supervisor's report.
func (d *Driver) lost(ctx context.Context, p *program, rec *record, s *session) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.refusal != nil {
		return s.refusal
	}
	entries, err := p.list(ctx)
	row, exists := entries[rec.Sandbox]
	if err == nil && !exists {
		return plugin.NotFoundf("sandbox %s was removed while a command ran in it", rec.ID)
	}
	// In a stopped sandbox nothing is left to kill, and an exec would start it.
	if err != nil || row.state() == plugin.StateRunning {
		_ = d.kill(ctx, p, rec, s)
	}
	return plugin.Errorf(plugin.KindIndeterminate, "sbx lost the command in sandbox %s: it may or may not have run to its end (%s)", rec.ID, errorLine(s.noise()))
}
