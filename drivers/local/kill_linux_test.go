package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// family is a command that leaves its session in every way there is.
const family = `setsid sleep 4001 & (setsid sh -c 'sleep 4002 & sleep 4003') & sh -c 'nohup sleep 4004 >/dev/null 2>&1 &'
trap '' TERM; echo part; sleep 4005`

// running returns the sleeps in a sandbox.
func (f *fixture) running(ref plugin.Ref) string {
	f.t.Helper()
	return f.exec(ref, shell(`for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep '^sleep' | sort; true`)).stdout
}

func TestTimeout(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create()
		f.exec(ref, shell("echo kept > /workspace/file; sleep 4000 >/dev/null 2>&1 &"))
		request := shell(family)
		request.Timeout = time.Second
		done := f.exec(ref, request)
		if done.Reason != plugin.ExitTimedOut || done.Code != 124 || done.SandboxTerminated || done.stdout != "part\n" {
			t.Errorf("got %+v", done)
		}
		if done.took < time.Second || done.took > 3*time.Second {
			t.Errorf("it took %s", done.took)
		}
		if left := f.running(ref); left != "sleep 4000 \n" {
			t.Errorf("what runs after the timeout: %q", left)
		}
		if kept := f.exec(ref, shell("cat /workspace/file")); kept.stdout != "kept\n" {
			t.Errorf("the file is %q", kept.stdout)
		}
		quick := shell("kill -9 $$")
		quick.Timeout = 30 * time.Second
		if done := f.exec(ref, quick); done.Reason != plugin.ExitSignaled || done.Code != 137 || done.Signal != "KILL" {
			t.Errorf("killed by itself: %+v", done)
		}
	})
}

func TestForkBombTimesOut(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	request := shell(`f() { f & f & wait; }; f`)
	request.Timeout = time.Second
	done := f.exec(ref, request)
	if done.Reason != plugin.ExitTimedOut || done.took > 8*time.Second {
		t.Errorf("got %+v", done)
	}
}

// TestManyDieTogether ends a command and what it has started at once, while its helper
// ends as well. The sandbox must not go with them.
func TestManyDieTogether(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create()
		for round := range 25 {
			done := f.exec(ref, shell(`i=0; while [ $i -lt 30 ]; do sleep 100 & i=$((i + 1)); done; kill -9 0`))
			if done.Signal != "KILL" {
				t.Errorf("round %d: %+v", round, done)
			}
			if again, err := f.tryExec(f.ctx(), ref, shell("echo alive")); err != nil || again.stdout != "alive\n" {
				t.Fatalf("round %d: %+v, %v", round, again, err)
			}
		}
	})
}

func TestBackgroundSurvives(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	done := f.exec(ref, shell("nohup sleep 4000 >/dev/null 2>&1 & sleep 4001 & echo up"))
	if done.stdout != "up\n" || done.took > 5*time.Second {
		t.Errorf("got %+v", done)
	}
	if left := f.running(ref); left != "sleep 4000 \nsleep 4001 \n" {
		t.Errorf("what runs: %q", left)
	}
}

func TestCancelKillsTheTree(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	ctx, cancel := context.WithCancel(f.ctx())
	var once bytes.Buffer
	_, err := f.Exec(ctx, ref, shell(family), &plugin.ExecIO{Stdout: writerFunc(func(data []byte) (int, error) {
		cancel()
		return once.Write(data)
	}), Stderr: &once})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := f.running(ref); left != "" {
		t.Errorf("what runs after the cancel: %q", left)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(data []byte) (int, error) { return w(data) }

func TestDriverDeathKillsTheTree(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	printed := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := f.Exec(f.ctx(), ref, shell(family), &plugin.ExecIO{Stdout: writerFunc(func(data []byte) (int, error) {
			close(printed)
			return len(data), nil
		}), Stderr: &bytes.Buffer{}})
		ended <- err
	}()
	<-printed
	if err := syscall.Kill(f.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the command came to a result without a driver")
	}
	second := startDriverIn(t, 0, f.stateDir, built, here)
	waitFor(t, "the command's end", func() bool { return second.running(ref) == "" })
	if done := second.exec(ref, shell("echo alive")); done.stdout != "alive\n" {
		t.Errorf("got %+v", done)
	}
	if _, err := second.Destroy(second.ctx(), ref); err != nil {
		t.Error(err)
	}
}

func waitFor(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for began := time.Now(); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

func TestSandboxKilledFromOutside(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	_, err := f.Exec(f.ctx(), ref, shell("echo up; sleep 4000"), &plugin.ExecIO{Stdout: writerFunc(func(data []byte) (int, error) {
		return len(data), syscall.Kill(f.sandboxPID(ref), syscall.SIGKILL)
	}), Stderr: &bytes.Buffer{}})
	if plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("killed during an exec: %v", err)
	}
	_, err = f.tryExec(f.ctx(), ref, shell("true"))
	if plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("killed before an exec: %v", err)
	}
	if _, err := f.Stat(f.ctx(), ref, "/", false); plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("killed before a file call: %v", err)
	}
	list, err := f.List(f.ctx(), plugin.ListRequest{})
	if err != nil || len(list.Sandboxes) != 0 || len(list.Warnings) != 0 {
		t.Errorf("list: %+v, %v", list, err)
	}
	if left := leftovers(f.stateDir); left != nil {
		t.Errorf("list has left %q", left)
	}
}

func (f *fixture) sandboxPID(ref plugin.Ref) int {
	content, err := os.ReadFile(filepath.Join(f.stateDir, "sandboxes", ref.ID, "pid"))
	if err != nil {
		f.t.Error(err)
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		f.t.Error(err)
	}
	return pid
}

func TestSignals(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	signals := make(chan string, 1)
	var out, ignored bytes.Buffer
	// The signal is for the command's whole group; the shell says so of its sleep.
	status, err := f.Exec(f.ctx(), ref, shell(`trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.05; done`), &plugin.ExecIO{
		Stdout: writerFunc(func(data []byte) (int, error) {
			if out.Len() == 0 {
				signals <- "USR1"
			}
			return out.Write(data)
		}), Stderr: &ignored, Signals: signals,
	})
	if err != nil || status.Code != 9 || out.String() != "ready\ncaught\n" {
		t.Errorf("got %+v, %v, %q", status, err, out.String())
	}
}

// TestLastBytesArrive looks at the end of output that is larger than the pipe, many
// times: the conformance suite has the large volumes.
func TestLastBytesArrive(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	const size = 1_500_000
	for range 10 {
		done := f.exec(ref, shell(fmt.Sprintf("head -c %d /dev/zero; printf END; printf ERR >&2", size)))
		if len(done.stdout) != size+3 || !strings.HasSuffix(done.stdout, "END") || done.stderr != "ERR" {
			t.Fatalf("%d bytes, the last ones %q, stderr %q", len(done.stdout), done.stdout[max(0, len(done.stdout)-8):], done.stderr)
		}
	}
}

func TestTerminal(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create()
		request := &plugin.ExecRequest{Argv: []string{"sh"}, TTY: true, Stdin: true, Size: plugin.TerminalSize{Rows: 31, Cols: 97}, User: "nobody"}
		input, typist := newTypist()
		resize := make(chan plugin.TerminalSize, 1)
		screen := &screen{}
		screen.on("ready1", func() { typist("stty size\n") })
		screen.on("31 97", func() { resize <- plugin.TerminalSize{Rows: 40, Cols: 120}; typist("sleep 0.3; stty size\n") })
		screen.on("40 120", func() { typist("tty; sleep 4000\n") })
		screen.on("/dev/pts/", func() { time.Sleep(200 * time.Millisecond); typist("\x03"); typist("false; echo rc$?\n") })
		screen.on("rc1", func() { typist("sleep 4001 &\nexit 5\n") })
		go typist("echo rea''dy1\n")
		status, err := f.Exec(f.ctx(), ref, request, &plugin.ExecIO{Stdin: input, Stdout: screen, Stderr: screen, Resize: resize})
		if err != nil || status.Code != 5 {
			t.Errorf("got %+v, %v, on the screen %q", status, err, screen.text.String())
		}
		if left := screen.left(); left != "" {
			t.Errorf("never seen: %s; on the screen %q", left, screen.text.String())
		}
	})
}
