package conformance

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func outputCases() []Case {
	return []Case{
		{
			ID: "output.bytes-of-text", Group: GroupOutput, run: checkTextBytes,
			Reason: "no newline is added, dropped or changed to CRLF",
			Source: "airflow 21, 22; reports 21, 24",
		},
		{
			ID: "output.silence", Group: GroupOutput, run: checkSilence,
			Reason: "a command that prints nothing has printed nothing",
			Source: "airflow 23; reports 4",
		},
		{
			ID: "output.all-bytes", Group: GroupOutput, run: checkAllBytes,
			Reason: "output need not be UTF-8",
			Source: "airflow 25; reports 26",
		},
		{
			ID: "output.separate", Group: GroupOutput, run: checkSeparate,
			Reason: "stdout is the result and stderr the talk about it; merged, neither can be used",
			Source: "airflow 19, 20; reports 27",
		},
		{
			ID: "output.both-at-once", Group: GroupOutput, run: checkBothAtOnce,
			Reason: "reading one channel to its end before the other deadlocks",
			Source: "airflow 32, 34",
		},
		{
			ID: "output.one-long-line", Group: GroupOutput, run: checkLongLine,
			Reason: "a line has no greatest length",
			Source: "airflow 29, 30",
		},
		{
			ID: "output.tail-at-exit", Group: GroupOutput, run: checkTailAtExit,
			Reason: "the last bytes before the exit are the traceback; they get lost when the exit overtakes them",
			Source: "reports 6; airflow 31", Limit: 2 * time.Minute,
		},
		{
			ID: "output.live", Group: GroupOutput, run: checkLive,
			Reason: "output that only comes at the end makes a long command look hung",
			Source: "design 6",
		},
		{
			ID: "output.kept-on-timeout", Group: GroupOutput, run: checkKeptOnTimeout,
			Reason: "what a command said before its time was over says why",
			Source: "reports 27",
		},
	}
}

func checkTextBytes(t *T) {
	box := t.shared()
	for _, text := range []string{"A\n\nB", "A\nB\nC\n", "x", "\n\n", "\n", "a\r\nb\r", " lead", "trail ", "\ta\n", "é漢🙂", "\x1b[31mred\x1b[0m\n", "a\x00b\n"} {
		got := box.exec(shell("printf '" + octal(text) + "'; printf '" + octal(text) + "' >&2"))
		t.wantExit("printf", got, 0)
		t.wantText("stdout", got.stdout, text)
		t.wantText("stderr", got.stderr, text)
	}
}

func checkSilence(t *T) {
	for _, command := range []string{"true", "false"} {
		got := t.shared().exec(&plugin.ExecRequest{Argv: []string{command}})
		if got.err != nil {
			t.Fatalf("%s failed: %v", command, got.err)
		}
		t.wantText("stdout of "+command, got.stdout, "")
		t.wantText("stderr of "+command, got.stderr, "")
	}
}

func checkAllBytes(t *T) {
	all := allBytes()
	got := t.shared().exec(shell("printf '" + octal(all) + "'; printf '" + octal(all) + "' >&2"))
	t.wantExit("printf", got, 0)
	t.wantText("stdout", got.stdout, all)
	t.wantText("stderr", got.stderr, all)
}

func checkSeparate(t *T) {
	got := t.shared().exec(shell("echo out; echo err >&2; echo out2; exit 7"))
	t.wantExit("the command", got, 7)
	t.wantText("stdout", got.stdout, "out\nout2\n")
	t.wantText("stderr", got.stderr, "err\n")
}

func checkBothAtOnce(t *T) {
	const lines, length = 1000, 1023 // of each channel; a pipe holds 64 KiB
	request := shell(fmt.Sprintf(`line=%s
i=0
while [ $i -lt %d ]; do
	echo "$line"
	echo "$line" >&2
	i=$((i + 1))
done`, strings.Repeat("x", length), lines))
	request.Timeout = stuck
	got := t.shared().exec(request)
	t.wantExit("the command", got, 0)
	want := strings.Repeat(strings.Repeat("x", length)+"\n", lines)
	t.wantText("stdout", got.stdout, want)
	t.wantText("stderr", got.stderr, want)
}

func checkLongLine(t *T) {
	box := t.shared()
	for _, end := range []string{"", `\n`} {
		got := box.exec(shell("head -c 200000 /dev/zero | tr '\\000' x; printf '" + end + "END'"))
		t.wantExit("the command", got, 0)
		t.wantText("a long line", got.stdout, strings.Repeat("x", 200000)+strings.ReplaceAll(end, `\n`, "\n")+"END")
	}
}

func checkTailAtExit(t *T) {
	box := t.shared()
	for range 15 {
		got := box.exec(shell("head -c 150000 /dev/zero; printf END; printf 'Traceback: last' >&2; exit 1"))
		t.wantExit("the command", got, 1)
		if len(got.stdout) != 150003 || !strings.HasSuffix(got.stdout, "END") {
			t.Fatalf("stdout has %d of 150003 bytes", len(got.stdout))
		}
		t.wantText("stderr", got.stderr, "Traceback: last")
	}
}

func checkLive(t *T) {
	box := t.shared()
	first := newTrigger("first")
	started := time.Now()
	var after time.Duration
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		select {
		case <-first.seen:
			after = time.Since(started)
		case <-t.ctx.Done():
		}
	}()
	// It says when it ends, so that a slow start is not taken for held output.
	request := shell("echo first; sleep 4; echo last")
	status, err := t.driver().Exec(t.ctx, box.ref, request, &plugin.ExecIO{Stdout: first, Stderr: io.Discard})
	took := time.Since(started)
	t.wantExit("the command", ran{status: status, err: err}, 0)
	<-waited
	if ahead := took - after; ahead < 2*time.Second {
		t.Errorf("the first line came %v before the end, though it was printed 4s before", ahead.Round(time.Millisecond))
	}
}

func checkKeptOnTimeout(t *T) {
	request := shell("echo part; echo talk >&2; sleep 60")
	request.Timeout = 2 * time.Second
	got := t.fresh().exec(request)
	t.wantExit("the command", got, 0, plugin.ExitTimedOut)
	t.wantText("stdout", got.stdout, "part\n")
	t.wantText("stderr", got.stderr, "talk\n")
}
