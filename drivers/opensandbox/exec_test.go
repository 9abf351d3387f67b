//go:build linux

package opensandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/execd"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// quirks are the daemons that exec has to be exact with.
var quirks = map[string]execd.Options{
	"1.0.19":    {},
	"lose tail": {LoseTail: true},
	"no bash":   {NoBash: true},
}

func eachQuirk(t *testing.T, test func(t *testing.T, r *rig, ref plugin.Ref)) {
	for name, quirk := range quirks {
		for _, proxied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,proxy=%v", name, proxied), func(t *testing.T) {
				t.Parallel()
				knobs := healthy
				knobs.Execd = quirk
				r := newRig(t, startDouble(t, knobs), withSetting("use_server_proxy", proxied))
				test(t, r, r.create(t))
			})
		}
	}
}

func TestExecIsByteExact(t *testing.T) {
	eachQuirk(t, func(t *testing.T, r *rig, ref plugin.Ref) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for _, c := range []struct {
			name, script, stdin, stdout, stderr string
			code                                int
		}{
			{"nothing", "", "", "", "", 0},
			{"no final newline", `printf 'A\n\nB'`, "", "A\n\nB", "", 0},
			{"final newline", `printf 'A\nB\n'`, "", "A\nB\n", "", 0},
			{"carriage returns", `printf '10%%\r20%%\r\n'`, "", "10%\r20%\r\n", "", 0},
			{"both channels", "echo out; echo err >&2; exit 7", "", "out\n", "err\n", 7},
			{"all bytes through", "cat", string(all), string(all), "", 0},
			{"ends with NUL", `printf 'a\000'`, "", "a\x00", "", 0},
			{"only NULs", `printf '\000\000\000'`, "", "\x00\x00\x00", "", 0},
			{"empty stdin", "cat; echo done", "", "done\n", "", 0},
			{"exit 124", "exit 124", "", "", "", 124},
			{"exit 137", "exit 137", "", "", "", 137},
			{"killed", "kill -9 $$", "", "", "", 137},
		} {
			res, err := r.tryExec(t.Context(), ref, &plugin.ExecRequest{
				Argv: []string{"sh", "-c", c.script}, Stdin: c.stdin != "" || c.name == "empty stdin",
			}, strings.NewReader(c.stdin))
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if res.stdout != c.stdout || res.stderr != c.stderr || res.Code != c.code || res.Reason == plugin.ExitTimedOut {
				t.Errorf("%s: %+v", c.name, res)
			}
			if !res.started {
				t.Errorf("%s: the start was not told", c.name)
			}
		}
	})
}

func TestExecPassesArgumentsAndEnvironment(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t, func(s *plugin.SandboxSpec) {
		s.Env = map[string]string{"FROM_CREATE": "it's \"$HOME\"\n; rm -rf /", "sbx": "mine", "IFS": "xyz"}
		s.Workdir = "/work place/deep"
	})
	odd := []string{"a b", "'", `"`, "$HOME", "`id`", "\\", "new\nline", "", "-n", "*", "~", "100%s", "ü"}
	res := r.exec(t, ref, &plugin.ExecRequest{Argv: append([]string{"printf", "%s\\0"}, odd...)})
	if want := strings.Join(odd, "\x00") + "\x00"; res.stdout != want {
		t.Errorf("arguments: %q, want %q", res.stdout, want)
	}
	res = r.exec(t, ref, &plugin.ExecRequest{
		Argv: []string{"sh", "-c", `printf '%s|%s|%s|%s|' "$FROM_CREATE" "$A" "$n$s$w$p$st" "$sbx"; pwd; env | grep -c EXECD`},
		Env:  map[string]string{"A": "x'y\n$B", "PATH": "/usr/bin:/bin"},
	})
	if want := "it's \"$HOME\"\n; rm -rf /|x'y\n$B||mine|/work place/deep\n0\n"; res.stdout != want {
		t.Errorf("environment: %q, want %q", res.stdout, want)
	}
	res = r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"pwd"}, Workdir: "/tmp"})
	if res.stdout != "/tmp\n" {
		t.Errorf("directory: %q", res.stdout)
	}
	res = r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"pwd"}, Workdir: ".."})
	if res.stdout != "/work place\n" {
		t.Errorf("relative directory: %q", res.stdout)
	}
	// A PATH without tools is the command's affair alone.
	res = r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"/bin/echo", "hi"}, Env: map[string]string{"PATH": "/nowhere"}})
	if res.stdout != "hi\n" {
		t.Errorf("with an empty PATH: %+v", res)
	}
}

func TestExecTellsWhatCannotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	if res := r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"no-such-command"}}); res.Code != 127 {
		t.Errorf("missing command: %+v", res)
	}
	if res := r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"/etc/passwd"}}); res.Code != 126 {
		t.Errorf("not executable: %+v", res)
	}
	long := strings.Repeat("x", 200<<10)
	if res := r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"echo", long}}); res.Code != 126 {
		t.Errorf("argument too long for the kernel: code %d", res.Code)
	}
	many := make([]string, 12)
	for i := range many {
		many[i] = strings.Repeat("y", 100<<10)
	}
	if res := r.exec(t, ref, &plugin.ExecRequest{Argv: append([]string{"echo"}, many...)}); res.stdout != strings.Join(many, " ")+"\n" {
		t.Errorf("1.2 MB of arguments: code %d, %d bytes", res.Code, len(res.stdout))
	}
	_, err := r.tryExec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}, Workdir: "/missing"}, nil)
	if e := wantKind(t, err, plugin.KindPath, "/missing"); e.PathReason != plugin.PathMissing {
		t.Errorf("reason %q", e.PathReason)
	}
	_, err = r.tryExec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}, Workdir: "/etc/passwd"}, nil)
	if e := wantKind(t, err, plugin.KindPath); e.PathReason != plugin.PathNotDirectory {
		t.Errorf("reason %q", e.PathReason)
	}
	for _, name := range []string{"A.B", "1A", "UID", ""} {
		_, err = r.tryExec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}, Env: map[string]string{name: "x"}}, nil)
		wantKind(t, err, plugin.KindInvalid, "environment variable")
	}
}

func TestExecMovesMuchData(t *testing.T) {
	eachQuirk(t, func(t *testing.T, r *rig, ref plugin.Ref) {
		res := r.exec(t, ref, sh("head -c 5000000 /dev/zero | tr '\\0' x; echo; head -c 300000 /dev/zero >&2"))
		if res.stdout != strings.Repeat("x", 5_000_000)+"\n" || res.stderr != string(make([]byte, 300_000)) {
			t.Errorf("a line of 5 MB: %d and %d bytes", len(res.stdout), len(res.stderr))
		}
		data := bytes.Repeat([]byte("\x00\xff\r\n\x00data"), 150_000)
		res, err := r.tryExec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sha256sum"}, Stdin: true}, bytes.NewReader(data))
		if want := fmt.Sprintf("%x  -\n", sha256.Sum256(data)); err != nil || res.stdout != want {
			t.Errorf("stdin: %+v, %v", res, err)
		}
		res, err = r.tryExec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"head", "-c", "3"}, Stdin: true}, bytes.NewReader(data))
		if err != nil || res.stdout != string(data[:3]) {
			t.Errorf("stdin that is not read: %+v, %v", res, err)
		}
	})
}

// A command that reads nothing for a while must not cost the connection.
func TestExecSurvivesUnreadStdin(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.Execd.PingInterval = 3 * time.Second
	r := newRig(t, startDouble(t, knobs))
	ref := r.create(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	res, err := r.tryExec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "sleep 7; cat"}, Stdin: true}, bytes.NewReader(data))
	if err != nil || res.stdout != string(data) {
		t.Errorf("%d bytes, %v", len(res.stdout), err)
	}
}

func TestExecIsLive(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	in, say := io.Pipe()
	hear, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := r.Exec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"cat"}, Stdin: true}, &plugin.ExecIO{Stdin: in, Stdout: out, Stderr: io.Discard})
		done <- err
	}()
	buf := make([]byte, 100)
	for _, word := range []string{"no newline", "\x00", "more"} {
		if _, err := io.WriteString(say, word); err != nil {
			t.Fatal(err)
		}
		if word == "\x00" {
			continue // what may begin a mark is held until more comes
		}
		n, err := hear.Read(buf)
		if err != nil || !strings.HasSuffix(word, strings.TrimPrefix(string(buf[:n]), "\x00")) {
			t.Fatalf("heard %q, %v", buf[:n], err)
		}
	}
	go io.Copy(io.Discard, hear)
	say.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestExecTimeout(t *testing.T) {
	eachQuirk(t, func(t *testing.T, r *rig, ref plugin.Ref) {
		began := time.Now()
		res := r.exec(t, ref, &plugin.ExecRequest{
			Argv: []string{"sh", "-c", "echo before; sleep 301 & (sleep 302) & sleep 303"}, Timeout: 300 * time.Millisecond,
		})
		if res.Reason != plugin.ExitTimedOut || res.stdout != "before\n" || time.Since(began) > time.Minute {
			t.Errorf("%+v after %s", res, time.Since(began))
		}
		if res := r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "sleep 0.2"}, Timeout: time.Minute}); res.Reason != plugin.ExitExited || res.Code != 0 {
			t.Errorf("in time: %+v", res)
		}
		if out := r.exec(t, ref, sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout; strings.Contains(out, "sleep 30") {
			t.Errorf("still running: %q", out)
		}
	})
}

func TestExecTimeoutForcesTheStubborn(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	res := r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "trap '' TERM; sleep 303 & while :; do wait; done"}, Timeout: 200 * time.Millisecond})
	if res.Reason != plugin.ExitTimedOut {
		t.Errorf("%+v", res)
	}
	if out := r.exec(t, ref, sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout; strings.Contains(out, "sleep 303") {
		t.Errorf("still running: %q", out)
	}
	res = r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "kill -9 $$"}, Timeout: 30 * time.Second})
	if res.Reason == plugin.ExitTimedOut || res.Code != 137 {
		t.Errorf("a fast kill: %+v", res)
	}
}

func TestExecCancelKillsTheTree(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	done := make(chan plugin.ExitStatus, 1)
	go func() {
		status, _ := r.Exec(ctx, ref, sh("sleep 301 & sleep 302"), &plugin.ExecIO{
			Stdout: io.Discard, Stderr: io.Discard, Started: func(time.Duration) { close(running) },
		})
		done <- status
	}()
	<-running
	cancel()
	if status := <-done; status.Reason != plugin.ExitCanceled {
		t.Errorf("%+v", status)
	}
	if out := r.exec(t, ref, sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout; strings.Contains(out, "sleep 30") {
		t.Errorf("still running: %q", out)
	}
}

// A driver that is killed leaves the command to its own deadline.
func TestExecDeadlineOutlivesTheDriver(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	stateDir := t.TempDir()
	r := newRig(t, d, withStateDir(stateDir))
	ref := r.create(t)
	running := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Exec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sleep", "305"}, Timeout: 700 * time.Millisecond},
			&plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard, Started: func(time.Duration) { close(running) }})
	}()
	<-running
	if err := r.driver.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	other := newRig(t, d, withStateDir(stateDir))
	deadline := time.Now().Add(time.Minute)
	for {
		out := other.exec(t, ref, sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
		if !strings.Contains(out, "sleep 305") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running: %q", out)
		}
	}
}

func TestExecLeavesBackgroundProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	began := time.Now()
	res := r.exec(t, ref, sh("nohup sleep 306 >/dev/null 2>&1 & sleep 307 & echo up"))
	if res.stdout != "up\n" || time.Since(began) > time.Minute {
		t.Errorf("%+v after %s", res, time.Since(began))
	}
	out := r.exec(t, ref, sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
	if !strings.Contains(out, "sleep 306") || !strings.Contains(out, "sleep 307") {
		t.Errorf("not running any more: %q", out)
	}
	if strings.Contains(out, "sleep 60") {
		t.Errorf("the program around the command was left behind: %q", out)
	}
}

func TestExecSignals(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	signals := make(chan string, 1)
	var out bytes.Buffer
	ready := &onWrite{w: &out, do: func() { signals <- "USR1" }}
	status, err := r.Exec(t.Context(), ref, sh("trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.05; done"),
		&plugin.ExecIO{Stdout: ready, Stderr: io.Discard, Signals: signals})
	if err != nil || status.Code != 9 || out.String() != "ready\ngot\n" {
		t.Errorf("%+v %v %q", status, err, out.String())
	}
}

// onWrite acts once, at the first write.
type onWrite struct {
	w    io.Writer
	do   func()
	done bool
}

func (o *onWrite) Write(p []byte) (int, error) {
	if !o.done {
		o.done = true
		o.do()
	}
	return o.w.Write(p)
}

func TestExecTerminal(t *testing.T) {
	t.Parallel()
	for name, quirk := range quirks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			knobs := healthy
			knobs.Execd = quirk
			r := newRig(t, startDouble(t, knobs))
			ref := r.create(t)
			res := r.exec(t, ref, &plugin.ExecRequest{
				Argv: []string{"sh", "-c", "tty >/dev/null && stty size; echo err >&2; exit 5"}, TTY: true,
				Size: plugin.TerminalSize{Rows: 33, Cols: 101},
			})
			if res.stdout != "33 101\r\nerr\r\n" || res.Code != 5 {
				t.Errorf("%+v", res)
			}
			res, err := r.tryExec(t.Context(), ref, &plugin.ExecRequest{
				Argv: []string{"sh", "-c", "read -r a; echo \"<$a>\"; stty -echo; cat"}, TTY: true, Stdin: true,
			}, strings.NewReader("typed\n"))
			if err != nil || !strings.Contains(res.stdout, "<typed>\r\n") || res.Code != 0 {
				t.Errorf("%+v, %v", res, err)
			}
			res = r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"sleep", "308"}, TTY: true, Timeout: 200 * time.Millisecond})
			if res.Reason != plugin.ExitTimedOut {
				t.Errorf("%+v", res)
			}
		})
	}
}

// A caller that stops reading for longer than execd waits for a slow client loses nothing, and the driver does not
// keep everything in memory.
func TestExecCallerPauses(t *testing.T) {
	t.Parallel() // it takes 11 seconds, as execd gives up a slow client after 10
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	sum := sha256.New()
	var total int64
	paused := &onWrite{w: writerFunc(func(p []byte) (int, error) { total += int64(len(p)); return sum.Write(p) }), do: func() { time.Sleep(11 * time.Second) }}
	status, err := r.Exec(t.Context(), ref, sh("head -c 60000000 /dev/zero"), &plugin.ExecIO{Stdout: paused, Stderr: io.Discard})
	if err != nil || status.Code != 0 || total != 60_000_000 {
		t.Errorf("%+v, %v, %d bytes", status, err, total)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExecLostConnection(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.Execd.CutAfter = 100_000
	r := newRig(t, startDouble(t, knobs))
	ref := r.create(t)
	_, err := r.tryExec(t.Context(), ref, sh("head -c 200000 /dev/zero; sleep 309"), nil)
	wantKind(t, err, plugin.KindIndeterminate, "lost", "has been killed")
	if out := r.exec(t, ref, sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout; strings.Contains(out, "sleep 309") {
		t.Errorf("still running: %q", out)
	}
}

func TestExecSandboxEndsMeanwhile(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	status, err := r.Exec(t.Context(), ref, sh("echo up; sleep 310"), &plugin.ExecIO{
		Stdout: &onWrite{w: io.Discard, do: func() { go d.Expire(d.IDs()[0]) }}, Stderr: io.Discard,
	})
	if err == nil {
		t.Fatalf("%+v", status)
	}
	wantKind(t, err, plugin.KindNotFound, "ended while the command ran")
	_, err = r.tryExec(t.Context(), ref, sh("true"), nil)
	wantKind(t, err, plugin.KindNotFound, "does not exist")
}

func TestExecProgramKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	// The parent of the command's process group leader is the program around it.
	_, err := r.tryExec(t.Context(), ref, sh("kill -9 $PPID; sleep 1"), nil)
	wantKind(t, err, plugin.KindIndeterminate)
}

func TestExecWithoutTheTools(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.Execd = execd.Options{NoBash: true, BashOnly: true}
	r := newRig(t, startDouble(t, knobs))
	ref := r.create(t)
	_, err := r.tryExec(t.Context(), ref, sh("true"), nil)
	wantKind(t, err, plugin.KindRefused, "START_FAILED")
}
