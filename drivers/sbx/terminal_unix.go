//go:build unix

package sbx

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const terminalSupport = true

// terminalScript runs the program in a file, which begins with its own removal. The
// command is a child in the foreground, so that its end can be told after it.
const terminalScript = `sbx_n=$2; printf '\036%s start %s\036' "$sbx_n" $$; . "$1"; printf '\036%s end %s\036' "$sbx_n" $?`

// onTerminal runs a command whose input and output are a terminal. A terminal is no
// way to send a program and its secrets, so they go ahead, into a file in the guest
// that only the command's user can read; the same call starts a stopped sandbox and
// sets its rules.
func (d *Driver) onTerminal(ctx context.Context, p *program, rec *record, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	const keep = `umask 077; f=$(mktemp /tmp/.sandboxctl-XXXXXXXX) && cat >"$f" && printf %s "$f"`
	status, file, err := d.runScript(ctx, p, rec, request.User, terminalPlan(rec, request), keep)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	if status.Code != 0 {
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInternal, "cannot prepare a terminal in sandbox %s: %s", rec.ID, strings.TrimSpace(file))
	}
	t, err := startTerminal(p, rec, request, file, stdio.Stdout)
	if err != nil {
		d.unplan(ctx, p, rec, file)
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindUnavailable, "cannot run %s on a terminal: %w", p.path, err)
	}
	defer t.close()
	t.resize.Go(func() { t.feed(request, stdio) })
	if err := d.awaitOpen(ctx, p, rec, t, file); err != nil {
		return plugin.ExitStatus{}, err
	}
	return d.awaitTerminal(ctx, p, rec, t, request.Timeout)
}

// terminalPlan is the program that becomes the command.
func terminalPlan(rec *record, request *plugin.ExecRequest) string {
	workdir := request.Workdir
	if workdir == "" {
		workdir = rec.Workdir
	}
	var b strings.Builder
	b.WriteString("rm -f -- \"$1\"\ntrap : INT QUIT\ncd -- " + quote(workdir) + " || exit 125\nunset OLDPWD\n")
	if rec.HasEnv {
		b.WriteString(". " + envFile + "\n")
	}
	b.WriteString(exports(request.Env))
	b.WriteString("set --")
	for _, arg := range request.Argv {
		b.WriteString(" " + quote(arg))
	}
	b.WriteString("\n\"$@\"\n")
	return b.String()
}

// terminal is one `sbx exec -it` on a pseudo-terminal of ours.
type terminal struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	leader *os.File
	gate   *gate
	exited chan struct{} // closed when sbx has ended and its output is read
	closed chan struct{}
	resize sync.WaitGroup

	started    chan struct{}
	ended      chan struct{}
	supervisor string
	end        string
}

func startTerminal(p *program, rec *record, request *plugin.ExecRequest, file string, out io.Writer) (*terminal, error) {
	mark := newMark()
	ctx, cancel := context.WithCancel(context.Background())
	args := []string{"exec", "-i", "-t", "-w", "/"}
	if request.User != "" {
		args = append(args, "-u", request.User)
	}
	t := &terminal{cancel: cancel, exited: make(chan struct{}), closed: make(chan struct{}), started: make(chan struct{}), ended: make(chan struct{})}
	t.cmd = p.command(ctx, append(args, rec.Sandbox, "sh", "-c", terminalScript, "sandboxctl", file, mark)...)
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	t.gate = newGate(mark, out, t.hear)
	size := &pty.Winsize{Rows: uint16(request.Size.Rows), Cols: uint16(request.Size.Cols)}
	if size.Rows == 0 || size.Cols == 0 {
		size = &pty.Winsize{Rows: 24, Cols: 80}
	}
	leader, err := pty.StartWithAttrs(t.cmd, size, t.cmd.SysProcAttr)
	if err != nil {
		cancel()
		return nil, err
	}
	t.leader = leader
	go func() {
		defer close(t.exited)
		_, _ = io.Copy(t.gate, leader) // ends with an error when the last process lets go of the terminal
		_ = t.cmd.Wait()
	}()
	return t, nil
}

func (t *terminal) hear(words []string) {
	switch {
	case words[0] == "start" && len(words) == 2 && t.supervisor == "":
		if _, err := strconv.ParseUint(words[1], 10, 32); err != nil {
			return
		}
		t.supervisor = words[1]
		close(t.started)
	case words[0] == "end" && len(words) == 2 && t.end == "":
		t.end = words[1]
		close(t.ended)
	}
}

// feed carries input, sizes and signals once the guest listens. Reading ends when the
// SDK ends stdin, after Exec has returned.
func (t *terminal) feed(request *plugin.ExecRequest, stdio *plugin.ExecIO) {
	select {
	case <-t.started:
	case <-t.closed:
		return
	}
	if stdio.Started != nil {
		stdio.Started(0)
	}
	if request.Stdin {
		go func() { _, _ = io.Copy(t.leader, stdio.Stdin) }()
	}
	if stdio.Resize == nil {
		return
	}
	for {
		select {
		case size, ok := <-stdio.Resize:
			if !ok {
				return
			}
			_ = pty.Setsize(t.leader, &pty.Winsize{Rows: uint16(size.Rows), Cols: uint16(size.Cols)})
		case <-t.closed:
			return
		}
	}
}

// awaitOpen waits until the terminal has begun to run the program. If it does not, the
// program, which holds secrets and must not run later, is removed.
func (d *Driver) awaitOpen(ctx context.Context, p *program, rec *record, t *terminal, file string) error {
	timer := time.NewTimer(p.limit)
	defer timer.Stop()
	var cause error
	select {
	case <-t.started:
		return nil
	case <-t.exited:
		if t.supervisor != "" {
			return nil
		}
		cause = d.lostTerminal(ctx, p, rec, t)
	case <-ctx.Done():
		cause = ctx.Err()
	case <-timer.C:
		cause = stalled([]string{"exec"}, p.limit)
	}
	if plugin.KindOf(cause) == plugin.KindNotFound || d.unplan(ctx, p, rec, file) {
		return cause
	}
	// It may have opened in this moment.
	select {
	case <-t.started:
	case <-t.exited:
	case <-time.After(killLimit):
	}
	_ = d.killTerminal(ctx, p, rec, t) // it logs what goes wrong
	if ctx.Err() != nil {
		return cause
	}
	return plugin.Errorf(plugin.KindIndeterminate, "the terminal in sandbox %s did not open, and the command may or may not have run: %w", rec.ID, cause)
}

// unplan removes a program that was not run, and says whether it was still there: it
// begins with its own removal, so then nothing has run and nothing will.
func (d *Driver) unplan(ctx context.Context, p *program, rec *record, file string) bool {
	out, err := p.runWithin(context.WithoutCancel(ctx), stopLimit, "exec", "-u", "0", "-w", "/", rec.Sandbox, "rm", "--", file)
	if err != nil {
		d.logger().Warn("could not remove the program of a terminal that did not open", "sandbox", rec.Sandbox, "error", err)
	}
	return err == nil && out.code == 0
}

// awaitTerminal waits for the command's end. A deadline on a terminal is kept here.
func (d *Driver) awaitTerminal(ctx context.Context, p *program, rec *record, t *terminal, timeout time.Duration) (plugin.ExitStatus, error) {
	var deadline <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		deadline = timer.C
	}
	select {
	case <-t.ended:
	case <-t.exited:
		if t.end == "" {
			return plugin.ExitStatus{}, d.lostTerminal(ctx, p, rec, t)
		}
	case <-ctx.Done():
		_ = d.killTerminal(ctx, p, rec, t)
		return plugin.ExitStatus{}, ctx.Err()
	case <-deadline:
		if err := d.killTerminal(ctx, p, rec, t); err != nil {
			return plugin.ExitStatus{}, notKilled(rec, err)
		}
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	}
	return statusOf([]string{t.end, "0", "0"}), nil
}

func (d *Driver) lostTerminal(ctx context.Context, p *program, rec *record, t *terminal) error {
	entries, err := p.list(ctx)
	if err != nil {
		return err
	}
	if _, exists := entries[rec.Sandbox]; !exists {
		return gone(plugin.Ref{ID: rec.ID})
	}
	if t.supervisor == "" {
		return explain("open a terminal in sandbox "+rec.ID, string(t.gate.noise))
	}
	return plugin.Errorf(plugin.KindIndeterminate, "sbx lost the terminal in sandbox %s: the command may or may not have run to its end", rec.ID)
}

// killTerminal kills the terminal's session in the guest, by its first process.
func (d *Driver) killTerminal(ctx context.Context, p *program, rec *record, t *terminal) error {
	select {
	case <-t.started:
		return d.killByExec(context.WithoutCancel(ctx), p, rec, "kill_all "+t.supervisor)
	default:
		return nil
	}
}

func (t *terminal) close() {
	select {
	case <-t.exited:
	case <-time.After(endLimit):
	}
	t.cancel()
	close(t.closed)
	t.resize.Wait()
	t.leader.Close()
	<-t.exited
}
