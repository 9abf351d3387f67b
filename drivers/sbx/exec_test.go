package sbx

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func argv(words ...string) *plugin.ExecRequest { return &plugin.ExecRequest{Argv: words} }

func shell(program string) *plugin.ExecRequest { return argv("sh", "-c", program) }

// survivors lists the processes in a sandbox whose command line has a text.
func (b *bench) survivors(ref plugin.Ref, text string) string {
	b.t.Helper()
	return b.sh(ref, `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' <"$f" 2>/dev/null | grep -F -- "`+text[:1]+`""`+text[1:]+`"; done; true`)
}

func TestExitCodes(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		ref := b.open()
		tests := []struct {
			request *plugin.ExecRequest
			code    int
			reason  plugin.ExitReason
			signal  string
		}{
			{argv("true"), 0, plugin.ExitExited, ""},
			{shell("exit 1"), 1, plugin.ExitExited, ""},
			{shell("exit 124"), 124, plugin.ExitExited, ""},
			{shell("exit 125"), 125, plugin.ExitExited, ""},
			{shell("exit 137"), 137, plugin.ExitExited, ""},
			{shell("kill -9 $$"), 137, plugin.ExitSignaled, "KILL"},
			{shell("kill -SEGV $$"), 139, plugin.ExitSignaled, "SEGV"},
			{argv("no-such-program"), 127, plugin.ExitExited, ""},
			{argv("/no/such/program"), 127, plugin.ExitExited, ""},
			{argv("/etc/passwd"), 126, plugin.ExitExited, ""},
		}
		for _, test := range tests {
			r, err := b.exec(ref, test.request, "")
			if err != nil || r.Code != test.code || r.Reason != test.reason || r.Signal != test.signal || r.stdout != "" {
				t.Errorf("%q: %+v, %v", test.request.Argv, r, err)
			}
		}
	})
}

func TestArgumentsArriveUnchanged(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	words := []string{"", " ", "a b", "$HOME", "`id`", "'", `"`, "\\", "\n", "*", "-n", "--", "é", "a\x1eb", strings.Repeat("x", 200<<10)[:100<<10]}
	r, err := b.exec(ref, argv(append([]string{"printf", "%s\\n"}, words...)...), "")
	if err != nil || r.stdout != strings.Join(words, "\n")+"\n" {
		t.Errorf("%q, %v", r.stdout[:min(len(r.stdout), 200)], err)
	}
	// A program text longer than one argument may be on the host's side.
	long := "echo " + strings.Repeat("# ", 60<<10)
	if r, err = b.exec(ref, shell(long), ""); err != nil || r.stdout != "\n" {
		t.Errorf("long program: %d, %v", r.Code, err)
	}
}

func TestStdin(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		ref := b.open()
		if got := b.sh(ref, "cat; readlink /proc/self/fd/0"); got != "/dev/null\n" {
			t.Errorf("stdin that was not asked for: %q", got)
		}
		content := bytes.Repeat([]byte("0123456789abcde\n"), 64<<10)
		r, err := b.exec(ref, argv("sha256sum"), string(content))
		if want := fmt.Sprintf("%x  -\n", sha256.Sum256(content)); err != nil || r.stdout != want {
			t.Errorf("%q, %v, want %q", r.stdout, err, want)
		}
		// A command that ends without reading all of it.
		if r, err := b.exec(ref, argv("head", "-c", "3"), string(content)); err != nil || r.Code != 0 || r.stdout != "012" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestOutputIsExactWhateverSbxPrints(t *testing.T) {
	for _, seed := range []int64{0, allYes} {
		c := sbxdouble.Config{Seed: seed, DaemonHeader: "stdout", WarnLine: "stdout", Banner: "stdout"}
		b := newBench(t, c)
		ref := b.open()
		r, err := b.exec(ref, shell(`printf 'A\n\nB'; printf '\036x' >&2`), "")
		if err != nil || r.stdout != "A\n\nB" || r.stderr != "\x1ex" {
			t.Errorf("seed %d: %+v, %v", seed, r, err)
		}
		if list, err := b.List(t.Context(), plugin.ListRequest{}); err != nil || len(list.Sandboxes) != 1 {
			t.Errorf("seed %d: %+v, %v", seed, list, err)
		}
	}
}

func TestLargeOutput(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	r, err := b.exec(ref, shell("head -c 8000000 /dev/zero; head -c 3000000 /dev/zero >&2"), "")
	if err != nil || len(r.stdout) != 8000000 || len(r.stderr) != 3000000 {
		t.Errorf("%d, %d, %v", len(r.stdout), len(r.stderr), err)
	}
}

func TestBackgroundProcessDoesNotHoldTheCommand(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		ref := b.open()
		started := time.Now()
		if got := b.sh(ref, "sleep 600 & echo up"); got != "up\n" {
			t.Errorf("%q", got)
		}
		if took := time.Since(started); took > time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

func TestTimeout(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		ref := b.open()
		request := shell("echo before; trap '' TERM; sleep 601 & (sleep 601) & setsid sleep 601 & sleep 601; sleep 601")
		request.Timeout = 300 * time.Millisecond
		started := time.Now()
		r, err := b.exec(ref, request, "")
		took := time.Since(started)
		if err != nil || r.Reason != plugin.ExitTimedOut || r.stdout != "before\n" || r.SandboxTerminated || r.AppliedTimeout != time.Second {
			t.Errorf("%+v, %v", r, err)
		}
		if took < time.Second || took > time.Minute {
			t.Errorf("took %s", took)
		}
		if left := b.survivors(ref, "sleep 601"); left != "" {
			t.Errorf("still running: %s", left)
		}
		if len(b.called("stop")) != 0 {
			t.Error("the sandbox was stopped although the guest kept the deadline")
		}
	})
}

func TestTimeoutWithUnreadStdin(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	request := argv("sleep", "602")
	request.Timeout = time.Second
	r, err := b.exec(ref, request, strings.Repeat("x", 4<<20))
	if err != nil || r.Reason != plugin.ExitTimedOut {
		t.Errorf("%+v, %v", r, err)
	}
}

// cancelled starts a command, waits for its first output, and cancels it.
func cancelled(t *testing.T, b *bench, ref plugin.Ref, program string, stdin io.Reader) (plugin.ExitStatus, time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var at time.Time
	first := writerFunc(func(data []byte) (int, error) {
		if at.IsZero() {
			at = time.Now()
			cancel()
		}
		return len(data), nil
	})
	request := shell(program)
	request.Stdin = stdin != nil
	status, err := b.Exec(ctx, ref, request, &plugin.ExecIO{Stdin: stdin, Stdout: first, Stderr: io.Discard})
	return status, time.Since(at), err
}

func TestCancelKillsTheTree(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		ref := b.open()
		status, took, err := cancelled(t, b, ref, "sleep 603 & echo up; sleep 603", nil)
		if err != nil || status.Reason != plugin.ExitCanceled {
			t.Errorf("%+v, %v", status, err)
		}
		if took > promptly {
			t.Errorf("took %s", took)
		}
		if left := b.survivors(ref, "sleep 603"); left != "" {
			t.Errorf("still running: %s", left)
		}
	})
}

// The supervisor cannot hear a kill behind megabytes of stdin that nobody reads.
func TestCancelWithUnreadStdin(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	status, _, err := cancelled(t, b, ref, "sleep 0.5; echo up; sleep 604", strings.NewReader(strings.Repeat("x", 600<<10)))
	if err != nil || status.Reason != plugin.ExitCanceled {
		t.Errorf("%+v, %v", status, err)
	}
	if left := b.survivors(ref, "sleep 604"); left != "" {
		t.Errorf("still running: %s", left)
	}
}

// A driver that is killed cannot clean up: the supervisor notices that it is gone.
func TestDeadDriverLeavesNoCommand(t *testing.T) {
	b := newBench(t, sbxdouble.Config{Seed: allYes})
	ref := b.open()
	driver, err := start(t.Context(), b.stateDir, b.double.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer driver.stop()
	up := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := driver.client.Exec(t.Context(), ref, shell("echo up; sleep 605"), &plugin.ExecIO{Stdout: writerFunc(func(data []byte) (int, error) {
			close(up)
			return len(data), nil
		}), Stderr: io.Discard})
		done <- err
	}()
	<-up
	process, err := os.FindProcess(driver.pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	deadline := time.Now().Add(time.Minute)
	for b.survivors(ref, "sleep 605") != "" {
		if time.Now().After(deadline) {
			t.Fatal("the command outlived its driver")
		}
	}
}

func TestSignals(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	for _, test := range []struct {
		signal, program string
		code            int
	}{
		{"INT", `trap 'exit 5' INT; echo up; while :; do sleep 0.05; done`, 5},
		{"TERM", `trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done`, 6},
	} {
		signals := make(chan string, 1)
		status, err := b.Exec(t.Context(), ref, shell(test.program), &plugin.ExecIO{Signals: signals, Stderr: io.Discard, Stdout: writerFunc(func(data []byte) (int, error) {
			signals <- test.signal
			return len(data), nil
		})})
		if err != nil || status.Code != test.code {
			t.Errorf("%s: %+v, %v", test.signal, status, err)
		}
	}
}

func TestUserAndWorkdir(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	spec := newSpec(plugin.NetworkNone)
	spec.Image = "docker/sandbox-templates:shell-docker"
	spec.Workdir = "/opt/made"
	ref := b.create(spec)
	got := b.sh(ref, "id -u; pwd; touch here && echo writable")
	if want := "1000\n/opt/made\nwritable\n"; got != want && os.Geteuid() == 0 {
		t.Errorf("%q, want %q", got, want)
	}
	request := shell("id -u; pwd")
	request.User, request.Workdir = "root", "/usr"
	if r, err := b.exec(ref, request, ""); err != nil || r.stdout != "0\n/usr\n" {
		t.Errorf("%+v, %v", r, err)
	}
	request = argv("true")
	request.User = "nobody-here"
	_, err := b.exec(ref, request, "")
	wantError(t, err, plugin.KindInvalid, "nobody-here")
	request = argv("true")
	request.Workdir = "/no/such/dir"
	_, err = b.exec(ref, request, "")
	wantError(t, err, plugin.KindInvalid, "working directory")
	request = argv("true")
	request.Env = map[string]string{"a-b": "c"}
	_, err = b.exec(ref, request, "")
	wantError(t, err, plugin.KindInvalid, "a-b")
}

// Variables of the supervisor must not shadow those of the command.
func TestEnvironmentIsTheCommandsOwn(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	spec := newSpec(plugin.NetworkNone)
	spec.Env = map[string]string{"n": "1", "t": "2", "d": "3", "i": "4", "s": "5", "pid": "6", "all": "7", "code": "8", "PWD": "9", "OLDPWD": "10", "PATH": "/usr/bin:/bin"}
	ref := b.create(spec)
	for name, want := range spec.Env {
		if r, err := b.exec(ref, argv("printenv", name), ""); err != nil || r.stdout != want+"\n" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	bare := b.open()
	r, err := b.exec(bare, argv("env"), "")
	if err != nil || strings.Contains(r.stdout, "sbx_") || strings.Contains(r.stdout, "OLDPWD") || strings.Contains(r.stdout, "SANDBOXCTL") {
		t.Errorf("the supervisor shows in the environment: %s, %v", r.stdout, err)
	}
	if got := b.sh(ref, "umask; find /tmp /var/tmp /run /dev/shm -type f"); got != "0022\n" {
		t.Errorf("umask, or something left in /tmp: %q", got)
	}
}

func TestStoppedSandboxStartsAndKeepsItsRules(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		ref := b.create(newSpec(plugin.NetworkAllow, "example.com", "*.example.org"))
		b.sh(ref, "echo kept >/root/f")
		name := string(ref.Handle)
		for _, how := range []string{"stopped", "stopping as the exec comes"} {
			if how == "stopped" {
				b.stop(name)
			} else {
				b.double.Change(t, func(c *sbxdouble.Config) {
					c.ExecFaults = make([]string, 100)
					for i := range c.ExecFaults {
						c.ExecFaults[i] = sbxdouble.ExecRestart
					}
				})
			}
			r, err := b.exec(ref, shell("cat /root/f; echo err >&2"), "")
			b.double.Change(t, func(c *sbxdouble.Config) { c.ExecFaults = nil })
			if err != nil || r.stdout != "kept\n" || r.stderr != "err\n" {
				t.Errorf("%s: %+v, %v", how, r, err)
			}
			for host, want := range map[string]bool{"example.com": true, "a.example.org": true, "other.com": false} {
				if got := b.reaches(name, host); got != want {
					t.Errorf("%s: %s reachable: %v, want %v", how, host, got, want)
				}
			}
		}
	})
}

func TestIdleSandboxIsStoppedAndStartsAgain(t *testing.T) {
	b := newBench(t, sbxdouble.Config{IdleStop: 50 * time.Millisecond})
	ref := b.open()
	deadline := time.Now().Add(time.Minute)
	for b.double.Running(string(ref.Handle)) {
		if time.Now().After(deadline) {
			t.Fatal("it never stopped")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if one, err := b.Inspect(t.Context(), ref); err != nil || one.State != plugin.StateStopped {
		t.Errorf("%+v, %v", one, err)
	}
	b.sh(ref, "true")
	if b.reaches(string(ref.Handle), "example.com") {
		t.Error("the network is open after the restart")
	}
}

func TestExecFaults(t *testing.T) {
	marker := filepath.Join("/tmp", "ran")
	for name, test := range map[string]struct {
		faults []string
		kind   plugin.Kind // "" when the result is known all the same
		ran    bool
	}{
		"end not inspected":    {[]string{sbxdouble.ExecInspect}, "", true},
		"client that lingers":  {[]string{sbxdouble.ExecLinger}, "", true},
		"daemon that refuses":  {[]string{sbxdouble.ExecRefused}, plugin.KindUnavailable, false},
		"no executor":          {[]string{sbxdouble.ExecExecutor}, plugin.KindUnavailable, false},
		"stream cut once":      {[]string{sbxdouble.ExecDrop}, "", true},
		"stream cut each time": {[]string{sbxdouble.ExecDrop, sbxdouble.ExecDrop}, plugin.KindUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, sbxdouble.Config{})
			ref := b.open()
			n := len(b.called("exec"))
			b.double.Change(t, func(c *sbxdouble.Config) { c.ExecFaults = append(make([]string, n), test.faults...) })
			r, err := b.exec(ref, shell("touch "+marker+"; exit 4"), "")
			if plugin.KindOf(err) != test.kind {
				t.Errorf("%+v, %v", r, err)
			}
			if r.stdout+r.stderr != "" {
				t.Errorf("what sbx printed is taken for the command's output: %q, %q", r.stdout, r.stderr)
			}
			if err == nil && r.Code != 4 {
				t.Errorf("%+v", r)
			}
			ran := b.sh(ref, "test -e "+marker+" && echo ran; true") == "ran\n"
			if ran != test.ran {
				t.Errorf("the command ran: %v, want %v", ran, test.ran)
			}
		})
	}
}

func TestStreamThatBreaksMidCommandIsIndeterminate(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	up := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := b.Exec(t.Context(), ref, shell("echo up; sleep 606"), &plugin.ExecIO{Stderr: io.Discard, Stdout: writerFunc(func(data []byte) (int, error) {
			close(up)
			return len(data), nil
		})})
		done <- err
	}()
	<-up
	b.stop(string(ref.Handle))
	wantError(t, <-done, plugin.KindIndeterminate, "may or may not")
}

func TestSandboxRemovedByOthers(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	b.sbx("rm", "--force", string(ref.Handle))
	_, err := b.exec(ref, shell("exit 1"), "")
	wantError(t, err, plugin.KindNotFound)
	if list, err := b.List(t.Context(), plugin.ListRequest{}); err != nil || len(list.Sandboxes) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = b.Renew(t.Context(), ref, time.Now().Add(time.Hour))
	wantError(t, err, plugin.KindNotFound)
	if gone, err := b.Destroy(t.Context(), ref); !gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	b.nothingLeft()
}

// A command can find the mark in the supervisor's arguments. All that it can do with
// it is to lie about its own end.
func TestCommandThatImitatesTheSupervisor(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	program := `for f in /proc/[0-9]*/cmdline; do m=$(tr '\0' '\n' <$f | grep -E '^[0-9a-f]{32}$') && break; done
for i in 1 2 3; do printf '\036%s start 0;touch$IFS/pwned\036' $m; printf '\036%s start 0;touch$IFS/pwned\036\036%s start 1\036' $m $m >&2; done
echo up; sleep 608`
	// With its stdin unread, the command is killed by a second exec, which is told whom.
	if status, _, err := cancelled(t, b, ref, program, strings.NewReader(strings.Repeat("x", 600<<10))); err != nil || status.Reason != plugin.ExitCanceled {
		t.Errorf("%+v, %v", status, err)
	}
	if left := b.survivors(ref, "sleep 608"); left != "" {
		t.Errorf("still running: %s", left)
	}
	if got := b.sh(ref, "ls /pwned 2>/dev/null; true"); got != "" {
		t.Error("the command ran a program as the driver")
	}
	r, err := b.exec(ref, shell(`for f in /proc/[0-9]*/cmdline; do m=$(tr '\0' '\n' <$f | grep -E '^[0-9a-f]{32}$') && break; done
for i in 1 2 3; do printf '\036%s end 0 0 0\036' $m; printf '\036%s end 0 0 0\036' $m >&2; done; exit 9`), "")
	if err != nil || r.Reason != plugin.ExitExited {
		t.Errorf("%+v, %v", r, err)
	}
}
