package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestGuestSeesNothingOfTheHost(t *testing.T) {
	t.Setenv("SECRET_OF_THE_CALLER", "s3cr3t")
	f := startDriver(t, 0)
	marker := filepath.Join(t.TempDir(), "marker")
	if err := os.WriteFile(marker, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	ref := f.create(func(spec *plugin.SandboxSpec) {
		spec.Env = map[string]string{"FROM_SPEC": "a 'b'\n;c", "LANG": "de_DE"}
	})
	request := &plugin.ExecRequest{Argv: []string{"env"}, Env: map[string]string{"FROM_EXEC": "1"}}
	want := "FROM_EXEC=1\nFROM_SPEC=a 'b'\n;c\nHOME=/root\nLANG=de_DE\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nUSER=root\n"
	if got := f.exec(ref, request).stdout; sortedLines(got) != sortedLines(want) {
		t.Errorf("the environment is %q", got)
	}
	hostname, _ := os.Hostname()
	for script, want := range map[string]string{
		"cat " + marker + " 2>&1 | grep -c host":              "0\n",
		"ls /etc/shadow /etc/ssh /etc/machine-id 2>/dev/null": "",
		"ls -A /root /home /tmp /workspace | tr -d '\n'":      "/home:/root:/tmp:/workspace:",
		"hostname":                                      "sandbox\n",
		"dmesg | grep -ci gvisor":                       "1\n",
		"grep -c " + hostname + " /etc/hostname":        "0\n",
		"ls -1 /sys/class/net 2>/dev/null | grep -v lo": "",
		"touch /usr/bin/written /etc/ssl/certs/written && rm /usr/bin/env && echo written": "written\n",
		"stat -c %a /tmp /root /workspace | tr '\n' ' '":                                   "1777 700 755 ",
		"stat -c %a:%U $(umask >/srv/u; mkdir /srv/made; echo /srv/made); cat /srv/u":      "755:root\n0022\n",
	} {
		if got := f.exec(ref, shell(script)).stdout; got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	for _, path := range []string{"/usr/bin/written", "/etc/ssl/certs/written"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the guest wrote the host's %s", path)
		}
	}
	probe := `import socket
for kind, address in ((socket.SOCK_STREAM, "1.1.1.1"), (socket.SOCK_STREAM, "169.254.169.254")):
    s = socket.socket(socket.AF_INET, kind); s.settimeout(5)
    try: s.connect((address, 80)); print("connected")
    except OSError as e: print(e.errno)
try: socket.getaddrinfo("example.com", 80); print("resolved")
except OSError: print("no name")
`
	if got := f.exec(ref, &plugin.ExecRequest{Argv: []string{"python3", "-c", probe}}); got.stdout != "101\n101\nno name\n" {
		t.Errorf("the network: %+v", got)
	}
}

func sortedLines(text string) string {
	count := map[string]int{}
	for line := range strings.Lines(text) {
		count[line]++
	}
	return fmt.Sprint(count)
}

func TestCreateIsIdempotent(t *testing.T) {
	f := startDriver(t, 0)
	spec := newSpec()
	spec.Labels = map[string]string{"team": "blue"}
	var wait sync.WaitGroup
	pids := make([]string, 3)
	for i := range pids {
		wait.Go(func() {
			made, err := f.Create(f.ctx(), spec, &events{})
			if err != nil {
				t.Errorf("create %d: %v", i, err)
				return
			}
			pids[i] = string(made.Details)
		})
	}
	wait.Wait()
	if pids[0] != pids[1] || pids[1] != pids[2] || pids[0] == "" {
		t.Errorf("not the same sandbox: %q", pids)
	}
	other := *spec
	other.Workdir = "/elsewhere"
	if _, err := f.Create(f.ctx(), &other, &events{}); plugin.KindOf(err) != plugin.KindConflict {
		t.Errorf("the same request with another specification: %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		var wait sync.WaitGroup
		refs := make([]plugin.Ref, 10)
		for i := range refs {
			wait.Go(func() {
				made, err := f.Create(f.ctx(), newSpec(), &events{})
				if err != nil {
					t.Errorf("create %d: %v", i, err)
					return
				}
				refs[i] = plugin.Ref{ID: made.ID}
				f := &fixture{Client: f.Client, t: t}
				if done := f.exec(refs[i], shell(fmt.Sprintf("cat /tmp/mine 2>/dev/null; echo %d | tee /tmp/mine", i))); done.stdout != fmt.Sprintln(i) {
					t.Errorf("sandbox %d has %q", i, done.stdout)
				}
			})
		}
		wait.Wait()
		for _, ref := range refs {
			wait.Go(func() {
				if gone, err := f.Destroy(context.Background(), ref); gone || err != nil {
					t.Errorf("destroy: %v, %v", gone, err)
				}
			})
		}
		wait.Wait()
	})
}

func TestLifecycle(t *testing.T) {
	f := startDriver(t, 0)
	spec := newSpec()
	spec.Labels, spec.Workdir = map[string]string{"team": "blue"}, "/srv/app/x"
	spec.ExpiresAt = spec.CreatedAt.Add(time.Hour)
	reported := &events{}
	made, err := f.Create(f.ctx(), spec, reported)
	if err != nil {
		t.Fatal(err)
	}
	if string(reported.handle) != string(made.Handle) || len(made.Handle) == 0 {
		t.Errorf("handles %q and %q", reported.handle, made.Handle)
	}
	check := func(got *plugin.Sandbox, expires time.Time) {
		t.Helper()
		if got.ID != spec.ID || got.Name != spec.Name || got.Owner != "owner" || got.State != plugin.StateRunning || got.Labels["team"] != "blue" ||
			len(got.Labels) != 1 || !got.CreatedAt.Equal(spec.CreatedAt) || !got.ExpiresAt.Equal(expires) || got.Workdir != "/srv/app/x" || got.Network.Mode != plugin.NetworkNone {
			t.Errorf("got %+v", got)
		}
	}
	check(made, spec.ExpiresAt)
	ref := plugin.Ref{ID: spec.ID}
	if done := f.exec(ref, shell("pwd")); done.stdout != "/srv/app/x\n" {
		t.Errorf("the workdir is %q", done.stdout)
	}
	if _, err := f.Renew(f.ctx(), ref, spec.ExpiresAt.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	list, err := f.List(f.ctx(), plugin.ListRequest{})
	if err != nil || len(list.Sandboxes) != 1 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	check(list.Sandboxes[0], spec.ExpiresAt.Add(time.Hour))
	for i, wantGone := range []bool{false, true} {
		if gone, err := f.Destroy(f.ctx(), ref); gone != wantGone || err != nil {
			t.Errorf("destroy %d: %v, %v", i, gone, err)
		}
	}
	if _, err := f.Inspect(f.ctx(), ref); plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("inspect after destroy: %v", err)
	}
	for _, id := range []string{"", "../..", "sb-unknown12345"} {
		if gone, err := f.Destroy(f.ctx(), plugin.Ref{ID: id}); !gone || err != nil {
			t.Errorf("destroy %q: %v, %v", id, gone, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	f := startDriver(t, otherUser)
	for name, test := range map[string]struct {
		change func(*plugin.SandboxSpec)
		kind   plugin.Kind
	}{
		"memory":         {func(s *plugin.SandboxSpec) { s.MemoryBytes = 1 << 30 }, plugin.KindRefused},
		"cpus":           {func(s *plugin.SandboxSpec) { s.CPUs = 1 }, plugin.KindRefused},
		"bad id":         {func(s *plugin.SandboxSpec) { s.ID = "../x" }, plugin.KindInvalid},
		"bad workdir":    {func(s *plugin.SandboxSpec) { s.Workdir = "here" }, plugin.KindInvalid},
		"system workdir": {func(s *plugin.SandboxSpec) { s.Workdir = "/usr/no/such" }, plugin.KindInvalid},
		"file workdir":   {func(s *plugin.SandboxSpec) { s.Workdir = "/etc/passwd" }, plugin.KindInvalid},
	} {
		spec := newSpec()
		test.change(spec)
		if _, err := f.Create(f.ctx(), spec, &events{}); plugin.KindOf(err) != test.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	ref := f.create()
	for name, test := range map[string]struct {
		request plugin.ExecRequest
		kind    plugin.Kind
	}{
		"missing workdir": {plugin.ExecRequest{Argv: []string{"true"}, Workdir: "/no/such"}, plugin.KindPath},
		"file as workdir": {plugin.ExecRequest{Argv: []string{"true"}, Workdir: "/etc/passwd"}, plugin.KindPath},
		"unknown user":    {plugin.ExecRequest{Argv: []string{"true"}, User: "mallory"}, plugin.KindInvalid},
		"unknown group":   {plugin.ExecRequest{Argv: []string{"true"}, User: "0:mallory"}, plugin.KindInvalid},
	} {
		if _, err := f.tryExec(f.ctx(), ref, &test.request); plugin.KindOf(err) != test.kind || !strings.Contains(err.Error(), " ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := leftovers(f.stateDir); len(left) > 3 {
		t.Errorf("refused sandboxes left %q", left)
	}
}

func TestCanceledCreateLeavesNothing(t *testing.T) {
	f := startDriver(t, 0)
	for delay := time.Duration(0); delay < 120*time.Millisecond; delay += 15 * time.Millisecond {
		ctx, cancel := context.WithTimeout(f.ctx(), delay+time.Millisecond)
		spec := newSpec()
		if _, err := f.Create(ctx, spec, &events{}); err == nil {
			_, _ = f.Destroy(f.ctx(), plugin.Ref{ID: spec.ID})
		}
		cancel()
	}
	waitFor(t, "the clean-up", func() bool { return leftovers(f.stateDir) == nil })
}

func TestLongStateDirectory(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		long := filepath.Join(f.stateDir, strings.Repeat("long-", 30), strings.Repeat("er-", 50))
		if err := os.MkdirAll(long, 0o700); err != nil {
			t.Fatal(err)
		}
		for dir := long; dir != f.stateDir; dir = filepath.Dir(dir) {
			if err := os.Chown(dir, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
		f = startDriverIn(t, uid, long, built, here)
		ref := f.create()
		if done := f.exec(ref, shell("echo works")); done.stdout != "works\n" {
			t.Errorf("got %+v", done)
		}
		for _, pattern := range []string{"/tmp/runsc-*", "/run/runsc-*", "/var/run/runsc-*"} {
			if found, _ := filepath.Glob(pattern); found != nil {
				t.Errorf("sockets outside of the state directory: %q", found)
			}
		}
	})
}

// TestDriverAlone runs the driver without the guest helper beside it.
func TestDriverAlone(t *testing.T) {
	bin := t.TempDir()
	if err := os.Link(filepath.Join(built, "sandboxctl-driver-local"), filepath.Join(bin, "sandboxctl-driver-local")); err != nil {
		t.Fatal(err)
	}
	f := startDriverIn(t, 0, t.TempDir(), bin, here)
	ref := f.create()
	if done := f.exec(ref, shell("echo works; exit 3")); done.stdout != "works\n" || done.Code != 3 {
		t.Errorf("got %+v", done)
	}
}

// TestOtherVersion talks to a helper as a driver of another version would: a sandbox
// keeps the helper that it was made with.
func TestOtherVersion(t *testing.T) {
	controlRead, controlWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	repliesRead, repliesWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer controlWrite.Close()
	defer repliesRead.Close()
	cmd := exec.Command(filepath.Join(built, guest.Name), guest.ModeCall, "0")
	cmd.ExtraFiles = []*os.File{controlRead, repliesWrite}
	err = cmd.Run()
	_, _ = controlRead.Close(), repliesWrite.Close()
	var reply guest.Reply
	if decodeErr := json.NewDecoder(repliesRead).Decode(&reply); err != nil || decodeErr != nil {
		t.Fatalf("the helper: %v, its reply: %v", err, decodeErr)
	}
	if reply.Error == nil || reply.Error.Reason != guest.ReasonRequest || !strings.Contains(reply.Error.Message, "another version") {
		t.Errorf("got %+v", reply.Error)
	}
}
