package sbx

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// wrapped is a bench whose sbx first runs a shell program, with the double as $sbx.
func wrapped(t *testing.T, c sbxdouble.Config, program string) *bench {
	t.Helper()
	c.Preset = denyAll
	b := &bench{t: t, double: sbxdouble.Install(t, c), stateDir: t.TempDir()}
	path := filepath.Join(t.TempDir(), "sbx")
	text := fmt.Sprintf("#!/bin/sh\nsbx='%s'\nhere='%s'\n%s\nexec \"$sbx\" \"$@\"\n", b.double.Path, filepath.Dir(path), program)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	b.startDriver(path)
	return b
}

// An answer of which a part is lost is not one without rules.
func TestRulesThatCannotBeRead(t *testing.T) {
	for name, answer := range map[string]string{
		"broken":  `{"rules": [\n{"id": "1", "decision": "allow",\n{"id": "2"}\n`,
		"another": `{"checks": []}`,
	} {
		b := wrapped(t, sbxdouble.Config{}, `case "$*" in *"policy ls"*) printf '`+answer+`'; exit 0 ;; esac`)
		_, err := b.Create(t.Context(), newSpec(plugin.NetworkAllow, "example.com"), &events{})
		if plugin.KindOf(err) != plugin.KindUnavailable || !strings.Contains(told(err), "policy ls") {
			t.Errorf("%s: %v", name, err)
		}
		b.nothingLeft()
	}
}

// What sbx cannot do is not learnt from a help that failed.
func TestFailedHelpIsNotKept(t *testing.T) {
	b := wrapped(t, sbxdouble.Config{}, `case "$*" in "create --help") [ -e "$here/once" ] || { : >"$here/once"; echo "ERROR: daemon connection refused" >&2; exit 1; } ;; esac`)
	_, err := b.List(t.Context(), plugin.ListRequest{})
	wantError(t, err, plugin.KindUnavailable, "daemon connection refused")
	b.open()
	if calls := b.called("create", "--quiet"); len(calls) != 1 || !slices.Contains(calls[0].Args, "--deny-network") {
		t.Errorf("%v", calls)
	}
}

// A shell drops NUL bytes without a word, which makes another request.
func TestBytesThatCannotArrive(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	for name, request := range map[string]*plugin.ExecRequest{
		"argument":  argv("echo", "a\x00b"),
		"value":     {Argv: []string{"env"}, Env: map[string]string{"A": "x\x00y"}},
		"directory": {Argv: []string{"pwd"}, Workdir: "/tm\x00p"},
	} {
		if _, err := b.exec(ref, request, ""); plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(told(err), "NUL") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := b.exec(ref, argv("printf", "%s", "\xff\xfe"), ""); err != nil || r.stdout != "\xff\xfe" {
		t.Errorf("%+v, %v", r, err)
	}
	for name, edit := range map[string]func(*plugin.SandboxSpec){
		"value":     func(s *plugin.SandboxSpec) { s.Env = map[string]string{"A": "x\x00y"} },
		"directory": func(s *plugin.SandboxSpec) { s.Workdir = "/a\x00b" },
	} {
		spec := newSpec(plugin.NetworkNone)
		edit(spec)
		if _, err := b.Create(t.Context(), spec, &events{}); plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// supervisors counts the supervisors in a sandbox, its own included. The processes of
// one have the same command line, in which its mark is.
func (b *bench) supervisors(ref plugin.Ref) int {
	b.t.Helper()
	lines := strings.Fields(b.sh(ref, `for f in /proc/[0-9]*/cmdline; do tr '\0' '\n' <"$f" 2>/dev/null | grep -A1 -x sandboxctl | grep -E -x '[0-9a-f]{32}'; done; true`))
	slices.Sort(lines)
	return len(slices.Compact(lines))
}

// What waits in the guest for its orders must be told when there are none, since the
// end of sbx need not reach it.
func TestNoSupervisorIsLeft(t *testing.T) {
	b := newBench(t, sbxdouble.Config{Seed: 0})
	ref := b.create(newSpec(plugin.NetworkAllow, "example.com"))
	check := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); b.supervisors(ref) != 1; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d supervisors, want the one that asks", what, b.supervisors(ref))
			}
		}
	}
	if status, _, err := cancelled(t, b, ref, "echo up; sleep 604", nil); err != nil || status.Reason != plugin.ExitCanceled {
		t.Errorf("%+v, %v", status, err)
	}
	check("canceled")
	if status, _, err := cancelled(t, b, ref, "sleep 0.5; echo up; sleep 604", strings.NewReader(strings.Repeat("x", 600<<10))); err != nil || status.Reason != plugin.ExitCanceled {
		t.Errorf("%+v, %v", status, err)
	}
	check("canceled with unread stdin")
	b.stop(string(ref.Handle))
	b.double.Change(t, func(c *sbxdouble.Config) { c.OrgGovernance = true })
	for range 10 { // whether a last word gets through before a kill is a matter of luck
		_, err := b.exec(ref, argv("true"), "")
		wantError(t, err, plugin.KindRefused)
	}
	b.double.Change(t, func(c *sbxdouble.Config) { c.OrgGovernance = false })
	check("refused")
}

// A deadline that neither the guest nor the driver could keep is no timeout: the command
// may still be running.
func TestDeadlineThatCannotBeKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	// The supervisor is stopped, so that it keeps no deadline and hears no order.
	request := shell(`for p in /proc/[0-9]*; do grep -q sbx"_"boot $p/cmdline 2>/dev/null && kill -STOP ${p#/proc/}; done; echo up; sleep 609`)
	request.Timeout = time.Second
	up := writerFunc(func(data []byte) (int, error) {
		b.double.Change(t, func(c *sbxdouble.Config) { c.Hang = []string{"exec", "stop"} })
		return len(data), nil
	})
	status, err := b.Exec(t.Context(), ref, request, &plugin.ExecIO{Stdout: up, Stderr: io.Discard})
	b.double.Change(t, func(c *sbxdouble.Config) { c.Hang = nil })
	if plugin.KindOf(err) != plugin.KindIndeterminate {
		t.Errorf("%+v, %v", status, err)
	}
	b.stop(string(ref.Handle))
}

// The program of a terminal that does not open holds secrets: it is removed, and has
// not run.
func TestTerminalThatDoesNotOpen(t *testing.T) {
	for _, fault := range []string{sbxdouble.ExecHang, sbxdouble.ExecRefused} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, sbxdouble.Config{}, "call_timeout=8s")
			ref := b.open()
			n := len(b.called("exec"))
			// The first puts the program there, the second is the terminal.
			b.double.Change(t, func(c *sbxdouble.Config) { c.ExecFaults = append(make([]string, n+1), fault) })
			request := shell("touch /ran")
			request.TTY, request.Timeout = true, time.Second
			_, err := b.Exec(t.Context(), ref, request, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
			wantError(t, err, plugin.KindUnavailable)
			if got := b.sh(ref, "find /tmp -name '.sandboxctl*'; ls /ran 2>/dev/null; true"); got != "" {
				t.Errorf("left in the guest: %s", got)
			}
		})
	}
}

// A guest can take the permissions away from what it leaves in its workspace.
func TestWorkspaceThatCannotBeRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read and remove everything")
	}
	dir := t.TempDir() + "/box"
	if err := os.MkdirAll(dir+"/workspace/a/b/c", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, closed := range []string{"/workspace/a/b", "/workspace/a", "/workspace"} {
		if err := os.Chmod(dir+closed, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeTree(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

func TestBeginningIsBounded(t *testing.T) {
	var b beginning
	for range 100 {
		if n, err := b.Write(make([]byte, 10<<10)); n != 10<<10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if b.Len() != beginningLimit {
		t.Errorf("%d bytes", b.Len())
	}
}
