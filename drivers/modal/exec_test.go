//go:build linux

package modal_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"

	"github.com/sandboxctl/sandboxctl/drivers/modal/internal/modaldouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestExec(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, func(s *plugin.SandboxSpec) {
		s.Workdir = "/work"
		s.Env = map[string]string{"FROM": "create; $(x) '\"\n"}
	})
	for _, test := range []struct {
		name           string
		request        plugin.ExecRequest
		stdin          string
		code           int
		stdout, stderr string
	}{
		{name: "streams apart", request: plugin.ExecRequest{Argv: []string{"sh", "-c", "printf 'A\n\nB'; echo err >&2; exit 7"}}, code: 7, stdout: "A\n\nB", stderr: "err\n"},
		{name: "argv is literal", request: plugin.ExecRequest{Argv: []string{"printf", "%s", "$HOME; 'x' *"}}, stdout: "$HOME; 'x' *"},
		{name: "own 124", request: plugin.ExecRequest{Argv: []string{"sh", "-c", "exit 124"}, Timeout: time.Minute}, code: 124},
		{name: "own 126", request: plugin.ExecRequest{Argv: []string{"sh", "-c", "exit 126"}}, code: 126},
		{name: "sandbox environment", request: plugin.ExecRequest{Argv: []string{"printenv", "FROM"}}, stdout: "create; $(x) '\"\n\n"},
		{name: "own environment", request: plugin.ExecRequest{Argv: []string{"printenv", "FROM"}, Env: map[string]string{"FROM": "exec"}}, stdout: "exec\n"},
		{name: "workdir", request: plugin.ExecRequest{Argv: []string{"pwd"}}, stdout: "/work\n"},
		{name: "own workdir", request: plugin.ExecRequest{Argv: []string{"pwd"}, Workdir: "/tmp"}, stdout: "/tmp\n"},
		{name: "relative workdir", request: plugin.ExecRequest{Argv: []string{"pwd"}, Workdir: "../tmp"}, stdout: "/tmp\n"},
		{name: "no stdin is empty", request: plugin.ExecRequest{Argv: []string{"wc", "-c"}}, stdout: "0\n"},
		{name: "stdin", request: plugin.ExecRequest{Argv: []string{"cat"}, Stdin: true}, stdin: "a\x00b\xff\n", stdout: "a\x00b\xff\n"},
		{name: "stdin unread", request: plugin.ExecRequest{Argv: []string{"true"}, Stdin: true}, stdin: strings.Repeat("x", 4<<20)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := b.try(t.Context(), ref, &test.request, strings.NewReader(test.stdin))
			if err != nil {
				t.Fatal(err)
			}
			if got.Code != test.code || got.Reason != plugin.ExitExited || got.stdout != test.stdout || got.stderr != test.stderr || got.SandboxTerminated {
				t.Errorf("got %+v", got)
			}
		})
	}
	if got := b.run(t, ref, &plugin.ExecRequest{Argv: []string{"no-such-program"}}); got.Code != 127 {
		t.Errorf("a missing program: %+v", got)
	}
	if got := b.shell(t, ref, "kill -9 $$"); got.Reason != plugin.ExitSignaled || got.Signal != "KILL" || got.Code != 137 || got.SandboxTerminated {
		t.Errorf("a killed command: %+v", got)
	}
	long := &plugin.ExecRequest{Argv: []string{"true", strings.Repeat("x", 65<<10)}}
	_, err := b.try(t.Context(), ref, long, nil)
	wantKind(t, err, plugin.KindInvalid)
}

func TestOpenStdinDoesNotHoldTheCommand(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	stdin, terminal := io.Pipe() // as a terminal that nobody types at
	defer terminal.Close()
	got, err := b.try(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}, Stdin: true}, stdin)
	if err != nil || got.Code != 0 || got.elapsed > 30*time.Second {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestLargeStreamsArriveWhole(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	got := b.shell(t, ref, "head -c 12000000 /dev/zero & head -c 4000000 /dev/zero >&2; wait")
	if len(got.stdout) != 12000000 || len(got.stderr) != 4000000 {
		t.Errorf("%d and %d bytes arrived", len(got.stdout), len(got.stderr))
	}
	input := strings.Repeat("0123456789abcdef", 200<<10)
	sum := sha256.Sum256([]byte(input))
	hashed, err := b.try(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sha256sum"}, Stdin: true}, strings.NewReader(input))
	if err != nil || !strings.HasPrefix(hashed.stdout, hex.EncodeToString(sum[:])) {
		t.Errorf("stdin arrived as %q, %v", hashed.stdout, err)
	}
}

func TestBackgroundProcessDoesNotHoldTheCommand(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(fmt.Sprintf("held streams %v", hold), func(t *testing.T) {
			b := newBench(t)
			b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.HoldStreams = hold })
			ref := b.create(t, nil)
			got := b.shell(t, ref, "sleep 300 & echo started")
			if got.stdout != "started\n" || got.Code != 0 || got.elapsed > time.Minute {
				t.Errorf("got %+v", got)
			}
			if alive := b.shell(t, ref, "ps -e -o args | grep -c '^sleep 300'"); alive.stdout != "1\n" {
				t.Errorf("the background process is gone: %+v", alive)
			}
		})
	}
}

// A process that the command has left behind can write for ever.
func TestLimitsHoldForTheOutputOfWhatIsLeft(t *testing.T) {
	request := &plugin.ExecRequest{Argv: []string{"sh", "-c", "yes & exit 3"}}
	hold := func(t *testing.T) (*bench, plugin.Ref) {
		b := newBench(t)
		b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.HoldStreams = true })
		return b, b.create(t, nil)
	}
	isGone := func(t *testing.T, b *bench, ref plugin.Ref) {
		eventually(t, "the process is gone", func() bool {
			return b.shell(t, ref, "ps -e -o stat,args | grep -v '^Z' | grep -c '[y]es$'").stdout == "0\n"
		})
	}
	nowhere := &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard}
	t.Run("timeout", func(t *testing.T) {
		b, ref := hold(t)
		limited := *request
		limited.Timeout = 3 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		status, err := b.Exec(ctx, ref, &limited, nowhere)
		if err != nil || status.Reason != plugin.ExitTimedOut || status.SandboxTerminated {
			t.Errorf("got %+v, %v", status, err)
		}
		isGone(t, b, ref)
	})
	t.Run("cancel", func(t *testing.T) {
		b, ref := hold(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		status, err := b.Exec(ctx, ref, request, nowhere)
		if err != nil && ctx.Err() == nil || err == nil && (status.Reason != plugin.ExitCanceled || status.SandboxTerminated) {
			t.Errorf("got %+v, %v", status, err)
		}
		isGone(t, b, ref)
	})
}

// A relative path starts where commands do, which the image may say.
func TestRelativeWorkdirStartsAtTheImages(t *testing.T) {
	b := newBench(t)
	b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.ImageWorkdir = "/srv/app" })
	ref := b.create(t, nil)
	b.shell(t, ref, "mkdir -p sub /elsewhere/deep && ln -s /elsewhere/deep link")
	for dir, want := range map[string]string{"sub": "/srv/app/sub\n", "link/..": "/elsewhere\n"} {
		got := b.run(t, ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "pwd -P"}, Workdir: dir})
		if got.stdout != want {
			t.Errorf("%s is %q, want %q", dir, got.stdout, want)
		}
	}
}

// Modal's protocol has no bytes but UTF-8 in arguments.
func TestArgumentsThatCannotBeSent(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	for name, request := range map[string]*plugin.ExecRequest{
		"argument": {Argv: []string{"echo", "\xff"}},
		"value":    {Argv: []string{"true"}, Env: map[string]string{"A": "\xff"}},
	} {
		_, err := b.try(t.Context(), ref, request, nil)
		if plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	spec := newSpec()
	spec.Env = map[string]string{"A": "\xff"}
	_, err := b.Create(t.Context(), spec, &recorder{})
	wantKind(t, err, plugin.KindRefused)
}

// tree starts processes in all the ways that escape a naive kill, the last of
// which ignores TERM.
const tree = `setsid sleep 301 & (sleep 302 & sleep 303) & env -i sleep 304 & trap '' TERM; echo up; sleep 305`

const countTree = "ps -e -o stat,args | grep -v '^Z' | grep -c 'sleep 30[1-5]$'"

func TestTimeoutKillsEverything(t *testing.T) {
	// The worker's own timeout comes long before ours, a little after it, or never.
	const early = -35 * time.Second
	for _, lag := range []time.Duration{early, -29 * time.Second, 0} {
		t.Run(lag.String(), func(t *testing.T) {
			b := newBench(t)
			b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.ExecTimeoutLag = lag })
			ref := b.create(t, nil)
			got := b.run(t, ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", tree}, Timeout: 6 * time.Second})
			if lag == early {
				// Killed by the worker after one second, before our time was up:
				// that is no timeout, and the children are not ours to judge.
				if got.Reason != plugin.ExitSignaled {
					t.Errorf("got %+v", got)
				}
				return
			}
			if got.Reason != plugin.ExitTimedOut || got.SandboxTerminated || got.stdout != "up\n" || got.elapsed > time.Minute {
				t.Errorf("got %+v", got)
			}
			if left := b.shell(t, ref, countTree); lag == 0 && left.stdout != "0\n" {
				t.Errorf("%s processes are left", strings.TrimSpace(left.stdout))
			}
		})
	}
}

func TestCancelKillsEverythingAndKeepsTheSandbox(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out lockedBuffer
	begin := time.Now()
	status, err := b.Exec(ctx, ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", tree}}, &plugin.ExecIO{
		Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return out.Write(p) }), Stderr: &lockedBuffer{},
	})
	if err == nil && (status.Reason != plugin.ExitCanceled || status.SandboxTerminated) {
		t.Errorf("got %+v, %v", status, err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if elapsed := time.Since(begin); elapsed > 30*time.Second {
		t.Errorf("it took %v", elapsed)
	}
	if left := b.shell(t, ref, countTree); left.stdout != "0\n" {
		t.Errorf("%s processes are left", strings.TrimSpace(left.stdout))
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestSandboxEndsWhenItsCommandCannotBeKilled(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	request := &plugin.ExecRequest{Argv: []string{"sh", "-c", "echo up; sleep 300"}, Timeout: 8 * time.Second}
	status, err := b.Exec(t.Context(), ref, request, &plugin.ExecIO{
		Stdout: writerFunc(func(p []byte) (int, error) {
			b.double.Inject(modaldouble.Fault{Method: "TaskExecStart", Code: codes.InvalidArgument, Message: "no shell here"})
			return len(p), nil
		}),
		Stderr: &lockedBuffer{},
	})
	if err != nil || status.Reason != plugin.ExitTimedOut || !status.SandboxTerminated {
		t.Errorf("got %+v, %v", status, err)
	}
	if b.double.Running() != 0 {
		t.Error("the sandbox still runs")
	}
}

func TestTimeoutIsClampedToTheLifetime(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, func(s *plugin.SandboxSpec) { s.ExpiresAt = time.Now().Add(15 * time.Second) })
	got := b.run(t, ref, &plugin.ExecRequest{Argv: []string{"sleep", "300"}, Timeout: 5 * time.Minute})
	if got.Reason != plugin.ExitTimedOut || !got.SandboxTerminated {
		t.Errorf("got %+v", got)
	}
	if got.applied < time.Second || got.applied > 15*time.Second || got.AppliedTimeout != got.applied {
		t.Errorf("applied timeouts are %v and %v", got.applied, got.AppliedTimeout)
	}
}

func TestSandboxThatEndsUnderACommand(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	status, err := b.Exec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "echo up; sleep 300"}}, &plugin.ExecIO{
		Stdout: writerFunc(func(p []byte) (int, error) {
			id := b.double.Sandboxes()[0].ID
			return len(p), b.double.EndSandbox(id, pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION)
		}),
		Stderr: &lockedBuffer{},
	})
	if plugin.KindOf(err) != plugin.KindNotFound && !status.SandboxTerminated {
		t.Errorf("got %+v, %v", status, err)
	}
	_, err = b.try(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}}, nil)
	wantKind(t, err, plugin.KindNotFound)
}

func TestLostConnectionLosesNoOutput(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	var out lockedBuffer
	drops := 0
	status, err := b.Exec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done; exit 4"}}, &plugin.ExecIO{
		Stdout: writerFunc(func(p []byte) (int, error) {
			if drops++; drops%2 == 1 {
				b.double.DropRouterConnections()
			}
			return out.Write(p)
		}),
		Stderr: &lockedBuffer{},
	})
	if err != nil || status.Code != 4 || out.String() != "1\n2\n3\n4\n5\n" {
		t.Errorf("got %+v, %v, %q", status, err, out.String())
	}
}

func TestStartThatIsNotAnsweredIsIndeterminate(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	b.double.Inject(modaldouble.Fault{Method: "TaskExecStart", Times: 11, LoseAnswer: true})
	_, err := b.try(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sleep", "301"}}, nil)
	wantKind(t, err, plugin.KindIndeterminate)
	if left := b.shell(t, ref, countTree); left.stdout != "0\n" {
		t.Error("the command that nobody was told of still runs")
	}
}

func TestTerminal(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	got := b.run(t, ref, &plugin.ExecRequest{
		Argv: []string{"sh", "-c", "test -t 0 && test -t 1 && stty size; exit 5"}, TTY: true, Size: plugin.TerminalSize{Rows: 40, Cols: 132},
	})
	if strings.TrimSpace(got.stdout) != "40 132" || got.Code != 5 {
		t.Errorf("got %+v", got)
	}
}

func TestResizeAndSignals(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	resize, signals := make(chan plugin.TerminalSize, 1), make(chan string, 1)
	var out lockedBuffer
	status, err := b.Exec(t.Context(), ref, &plugin.ExecRequest{
		Argv: []string{"bash", "-c", "trap 'stty size' WINCH; trap 'echo bye; exit 9' USR1; echo up; while :; do sleep 0.05; done"}, TTY: true,
	}, &plugin.ExecIO{
		Stdout: writerFunc(func(p []byte) (int, error) {
			switch text := string(p); {
			case strings.Contains(text, "up"):
				resize <- plugin.TerminalSize{Rows: 33, Cols: 77}
			case strings.Contains(text, "33 77"):
				signals <- "USR1"
			}
			return out.Write(p)
		}),
		Stderr: &lockedBuffer{}, Resize: resize, Signals: signals,
	})
	if err != nil || status.Code != 9 || !strings.Contains(out.String(), "bye") {
		t.Errorf("got %+v, %v, %q", status, err, out.String())
	}
}

func TestReaderThatStopsEndsTheCommand(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err := b.Exec(ctx, ref, &plugin.ExecRequest{Argv: []string{"yes"}}, &plugin.ExecIO{
		Stdout: writerFunc(func([]byte) (int, error) { return 0, errors.New("full") }), Stderr: &lockedBuffer{},
	})
	if err == nil || time.Since(begin) > time.Minute {
		t.Errorf("got %v after %v", err, time.Since(begin))
	}
	eventually(t, "the command is gone", func() bool {
		return b.shell(t, ref, "ps -e -o stat,args | grep -v '^Z' | grep -c '[y]es$'").stdout == "0\n"
	})
}
