package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func execControlCases() []Case {
	return []Case{
		{
			ID: "exec.background-output", Group: GroupExec, run: checkBackgroundOutput,
			Reason: "a process left in the background holds the pipes open; the command has ended all the same",
			Source: "airflow 47; reports 29",
		},
		{
			ID: "exec.background-lives", Group: GroupExec, Needs: []Need{needsBackground}, run: checkBackgroundLives,
			Reason: "servers are started this way",
			Source: "airflow 48",
		},
		{
			ID: "exec.cancel", Group: GroupExec, run: checkCancel,
			Reason: "a cancelled command and all that it started must be gone, and soon",
			Source: "reports 31, 69; design 5",
		},
		{
			ID: "exec.signal", Group: GroupExec, Needs: []Need{needsSignals}, run: checkSignal,
			Reason: "a claimed signal that does not arrive cannot stop a server gracefully",
			Source: "design 3",
		},
		{
			ID: "exec.no-tty", Group: GroupExec, run: checkNoTTY,
			Reason: "a terminal that nobody asked for adds carriage returns and colours",
			Source: "reports 21",
		},
		{
			ID: "exec.tty", Group: GroupExec, Needs: []Need{needsTTY}, run: checkTTY,
			Reason: "a claimed terminal is one on all three channels, in the size that was asked for",
			Source: "reports 23",
		},
		{
			ID: "exec.tty-resize", Group: GroupExec, Needs: []Need{needsTTY, needsStdin}, run: checkResize,
			Reason: "an editor draws for the size that it is told",
			Source: "reports 23",
		},
	}
}

func checkBackgroundOutput(t *T) {
	got := t.fresh().exec(shell("sleep 55 & echo started"))
	t.wantExit("a command with a background process", got, 0)
	t.wantText("its output", got.stdout, "started\n")
	if got.took > promptly {
		t.Errorf("it took %v; the background process was waited for", got.took)
	}
}

func checkBackgroundLives(t *T) {
	box := t.fresh()
	got := box.sh(`nohup sleep 300 >/dev/null 2>&1 & echo $! >pid; echo up`)
	t.wantExit("starting it", got, 0)
	if got.took > promptly {
		t.Errorf("starting it took %v", got.took)
	}
	if box.alive(box.path("pid")) != 1 {
		t.Errorf("the background process did not outlive its command, which exec.background claims")
	}
}

// threeSleeps start processes in the ways in which they escape a kill of the first,
// and note their pids in the file pids.
const threeSleeps = `sleep 301 & echo $! >>pids
(sleep 302 & echo $! >>pids; wait) &
echo $$ >>pids
echo running
wait`

func checkCancel(t *T) {
	box := t.fresh().mkdir()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	running := newTrigger("running\n")
	var cancelled time.Time
	go func() {
		select {
		case <-running.seen:
		case <-t.ctx.Done():
		}
		cancelled = time.Now()
		cancel()
	}()
	request := &plugin.ExecRequest{Argv: []string{"sh", "-c", threeSleeps}, Workdir: box.dir}
	status, err := t.driver().Exec(ctx, box.ref, request, &plugin.ExecIO{Stdout: running, Stderr: io.Discard})
	took := time.Since(cancelled)
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && plugin.KindOf(err) != plugin.KindCanceled:
		t.Errorf("the cancelled command failed with %v", err)
	case err == nil && status.Reason == plugin.ExitExited && status.Code == 0:
		t.Errorf("the cancelled command ended with exit 0")
	}
	if took > promptly {
		t.Errorf("the cancel took %v", took.Round(time.Millisecond))
	}
	if !t.eventually(promptly, func() bool { return box.alive(box.path("pids")) == 0 }) {
		t.Errorf("%d processes of the cancelled command still run", box.alive(box.path("pids")))
	}
}

// trigger is a writer that tells when a text has come.
type trigger struct {
	text string
	seen chan struct{}

	mu   sync.Mutex
	data bytes.Buffer
	done bool
}

func newTrigger(text string) *trigger { return &trigger{text: text, seen: make(chan struct{})} }

func (g *trigger) Write(data []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.data.Write(data)
	if !g.done && strings.Contains(g.data.String(), g.text) {
		g.done = true
		close(g.seen)
	}
	return len(data), nil
}

func (g *trigger) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.data.String()
}

func checkSignal(t *T) {
	box := t.shared()
	ready := newTrigger("ready\n")
	signals := make(chan string, 1)
	go func() {
		select {
		case <-ready.seen:
			signals <- "USR1"
		case <-t.ctx.Done():
		}
	}()
	request := shell(`trap 'echo trapped; exit 7' USR1; echo ready; while :; do sleep 0.1 2>/dev/null || sleep 1; done`)
	request.Timeout = stuck
	status, err := t.driver().Exec(t.ctx, box.ref, request, &plugin.ExecIO{Stdout: ready, Stderr: io.Discard, Signals: signals})
	t.wantExit("a command that traps USR1", ran{status: status, err: err}, 7)
	t.wantText("its output", ready.String(), "ready\ntrapped\n")
}

func checkNoTTY(t *T) {
	got := t.shared().exec(shell("for fd in 0 1 2; do test -t $fd && echo $fd; done; exit 0"))
	t.wantExit("test -t", got, 0)
	t.wantText("the channels that are a terminal", got.stdout, "")
}

func checkTTY(t *T) {
	request := shell("for fd in 0 1 2; do test -t $fd || echo no $fd; done; echo err >&2; stty size")
	request.TTY, request.Size = true, plugin.TerminalSize{Rows: 33, Cols: 77}
	got := t.shared().exec(request)
	t.wantExit("the command", got, 0)
	t.wantText("its output", strings.ReplaceAll(got.stdout, "\r", ""), "err\n33 77\n")
	t.wantText("its stderr, which a terminal does not have", got.stderr, "")
}

func checkResize(t *T) {
	box := t.shared()
	ready := newTrigger("ready")
	resize := make(chan plugin.TerminalSize, 1)
	stdin, typing := io.Pipe()
	defer typing.Close()
	go func() {
		select {
		case <-ready.seen:
			resize <- plugin.TerminalSize{Rows: 41, Cols: 101}
		case <-t.ctx.Done():
		}
	}()
	request := shell(`echo ready; n=0; until [ "$(stty size)" = "41 101" ] || [ $n -gt 200 ]; do n=$((n + 1)); sleep 0.1 2>/dev/null || sleep 1; done; stty size`)
	request.TTY, request.Stdin, request.Size = true, true, plugin.TerminalSize{Rows: 24, Cols: 80}
	request.Timeout = stuck
	status, err := t.driver().Exec(t.ctx, box.ref, request, &plugin.ExecIO{Stdin: stdin, Stdout: ready, Stderr: io.Discard, Resize: resize})
	t.wantExit("the command", ran{status: status, err: err}, 0)
	t.wantText("the size after the resize", strings.ReplaceAll(ready.String(), "\r", ""), "ready\n41 101\n")
}
