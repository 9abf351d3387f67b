package conformance

import (
	"io"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func execInputCases() []Case {
	return []Case{
		{
			ID: "exec.no-stdin", Group: GroupExec, run: checkNoStdin,
			Reason: "a command that reads stdin must not wait for a caller that has none to give",
			Source: "airflow 55; reports 15, 18",
		},
		{
			ID: "exec.stdin-bytes", Group: GroupExec, Needs: []Need{needsStdin}, run: checkStdinBytes,
			Reason: "stdin carries files; a changed byte corrupts them",
			Source: "reports 16, 26; design 6",
		},
		{
			ID: "exec.stdin-end", Group: GroupExec, Needs: []Need{needsStdin}, run: checkStdinEnd,
			Reason: "the end of input must reach the command, or it waits for ever",
			Source: "reports 18",
		},
		{
			ID: "exec.stdin-unread", Group: GroupExec, Needs: []Need{needsStdin}, run: checkStdinUnread,
			Reason: "a command that ends without reading its input has ended",
			Source: "reports 19",
		},
		{
			ID: "exec.stdin-live", Group: GroupExec, Needs: []Need{needsStdin}, run: checkStdinLive,
			Reason: "a dialogue needs each side's bytes at once",
			Source: "reports 16, 22",
		},
	}
}

func checkNoStdin(t *T) {
	got := t.shared().exec(&plugin.ExecRequest{Argv: []string{"cat"}, Timeout: stuck})
	t.wantExit("cat without stdin", got, 0)
	if got.stdout != "" || got.took > promptly {
		t.Errorf("cat without stdin printed %s and took %v", short(got.stdout), got.took)
	}
}

func checkStdinBytes(t *T) {
	content := strings.Repeat(allBytes(), 4<<10) // 1 MiB
	got := t.shared().execWith(t.ctx, &plugin.ExecRequest{Argv: []string{"cat"}}, strings.NewReader(content))
	t.wantExit("cat", got, 0)
	t.wantText("what cat gave back", got.stdout, content)
}

func checkStdinEnd(t *T) {
	box := t.shared()
	for _, content := range []string{"", "x", "no newline at the end", "one\n"} {
		got := box.execWith(t.ctx, &plugin.ExecRequest{Argv: []string{"cat"}, Timeout: stuck}, strings.NewReader(content))
		if t.wantExit("cat of "+short(content), got, 0); got.status.Reason == plugin.ExitTimedOut {
			return
		}
		t.wantText("its output", got.stdout, content)
	}
}

func checkStdinUnread(t *T) {
	open, sender := io.Pipe()
	defer sender.Close()
	got := t.shared().execWith(t.ctx, shell("printf done"), open)
	t.wantExit("a command with an open stdin", got, 0)
	t.wantText("its output", got.stdout, "done")
	if got.took > promptly {
		t.Errorf("a command that does not read its stdin took %v", got.took)
	}
}

func checkStdinLive(t *T) {
	box := t.shared()
	stdin, toGuest := io.Pipe()
	fromGuest, stdout := io.Pipe()
	ended := make(chan ran, 1)
	go func() {
		request := shell(`while read -r line; do printf 'got %s\n' "$line"; done`)
		request.Stdin = true
		request.Timeout = stuck
		status, err := t.driver().Exec(t.ctx, box.ref, request, &plugin.ExecIO{Stdin: stdin, Stdout: stdout, Stderr: io.Discard})
		stdout.CloseWithError(io.EOF)
		ended <- ran{status: status, err: err}
	}()
	for _, line := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(toGuest, line); err != nil {
			t.Errorf("sending %q: %v", line, err)
			break
		}
		answer := make([]byte, len("got ")+len(line))
		if _, err := io.ReadFull(fromGuest, answer); err != nil {
			t.Errorf("no answer to %q: %v", line, err)
			break
		}
		t.wantText("the answer", string(answer), "got "+line)
	}
	toGuest.Close()
	go io.Copy(io.Discard, fromGuest)
	t.wantExit("the dialogue", <-ended, 0)
}
