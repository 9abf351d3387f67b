package local_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// built is the directory with the driver and its guest helper, readable by everybody.
var built string

// otherUser is an ordinary user that needs no entry in any database.
const otherUser = 54321

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	if os.Getenv(onHostEnv) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "local-driver-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = filepath.Join(dir, "bin")
	if err := plugintest.Build(built, "./cmd/..."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// MkdirTemp makes directories that other users cannot enter.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// fixture is a driver process with a state directory of its own.
type fixture struct {
	*plugin.Client
	t        testing.TB
	process  *goplugin.Client
	pid      int
	stateDir string
	uid      int
}

// startDriver runs the driver as a user and, when the test ends, checks that it has
// left nothing.
func startDriver(t testing.TB, uid int) *fixture {
	t.Helper()
	return startDriverOn(t, uid, here)
}

// startDriverOn runs the driver wherever the given function calls what it is given.
func startDriverOn(t testing.TB, uid int, on func(start func())) *fixture {
	t.Helper()
	if uid != os.Geteuid() && os.Geteuid() != 0 {
		t.Fatalf("the tests of the local driver as uid %d have to be run by root", uid)
	}
	state := filepath.Join(t.TempDir(), "state")
	for _, dir := range []string{filepath.Dir(filepath.Dir(state)), filepath.Dir(state)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(state, uid, uid); err != nil {
		t.Fatal(err)
	}
	return startDriverIn(t, uid, state, built, on)
}

// here is where the tests themselves run.
func here(start func()) { start() }

func startDriverIn(t testing.TB, uid int, state, bin string, on func(start func())) *fixture {
	t.Helper()
	sockets, err := os.MkdirTemp("", "ls")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(sockets, uid, uid); err != nil {
		t.Fatal(err)
	}
	// The caller's umask must not show in the guest.
	cmd := exec.Command("/bin/sh", "-c", `umask 077; exec "$0"`, filepath.Join(bin, "sandboxctl-driver-local"))
	// A driver that is killed leaves its socket in TMPDIR.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + sockets}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Setpgid: true}
	process := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  plugin.Handshake(),
		VersionedPlugins: plugin.HostServices(),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Cmd:              cmd,
		SkipHostEnv:      true,
		Logger:           hclog.NewNullLogger(),
		Stderr:           testWriter{t},
	})
	f := &fixture{t: t, process: process, stateDir: state, uid: uid}
	t.Cleanup(func() { f.stop(); _ = os.RemoveAll(sockets) })
	var connection goplugin.ClientProtocol
	on(func() { connection, err = process.Client() })
	if err != nil {
		t.Fatalf("the driver does not start: %v", err)
	}
	dispensed, err := connection.Dispense(plugin.ServiceName)
	if err != nil {
		t.Fatal(err)
	}
	f.Client, f.pid = dispensed.(*plugin.Client), cmd.Process.Pid
	if _, err := f.Configure(f.ctx(), plugin.Config{HostVersion: "test", StateDir: state, Owner: "owner"}); err != nil {
		t.Fatalf("configure: %v", err)
	}
	return f
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(data []byte) (int, error) {
	w.t.Logf("driver: %s", bytes.TrimSpace(data))
	return len(data), nil
}

// ctx is long enough for whatever one call does.
func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fixture) stop() {
	if f.Client != nil && !f.process.Exited() {
		if list, err := f.List(context.Background(), plugin.ListRequest{}); err == nil {
			for _, each := range list.Sandboxes {
				_, _ = f.Destroy(context.Background(), plugin.Ref{ID: each.ID, Handle: each.Handle})
			}
		}
	}
	f.process.Kill()
	// A keeper may be about to remove its sandbox.
	for end := time.Now().Add(5 * time.Second); len(leftovers(f.stateDir)) > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	for _, left := range leftovers(f.stateDir) {
		f.t.Errorf("left behind: %s", left)
	}
}

// leftovers lists what still exists of the sandboxes below a state directory.
func leftovers(stateDir string) []string {
	var left []string
	names, _ := filepath.Glob(filepath.Join(stateDir, "sandboxes", "*"))
	left = append(left, names...)
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		if line, _ := os.ReadFile(file); bytes.Contains(line, []byte(stateDir+"/")) {
			left = append(left, "process "+file+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, stateDir) {
			left = append(left, "mount "+line)
		}
	}
	return left
}

func newID() string {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw)
	return "sb-" + strings.ToLower(base32.StdEncoding.EncodeToString(raw))[:12]
}

func newSpec() *plugin.SandboxSpec {
	id := newID()
	return &plugin.SandboxSpec{
		ID: id, RequestID: "request-" + id, Name: "name-" + id, Owner: "owner",
		Network: plugin.NetworkPolicy{Mode: plugin.NetworkNone}, CreatedAt: time.Now().Truncate(time.Second),
	}
}

// events collects what a create reports.
type events struct {
	mu       sync.Mutex
	handle   []byte
	warnings []string
}

func (e *events) Created(handle []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handle = handle
}
func (e *events) Progress(plugin.Progress) {}
func (e *events) Warn(message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warnings = append(e.warnings, message)
}

// create makes a sandbox that lives as long as the fixture.
func (f *fixture) create(change ...func(*plugin.SandboxSpec)) plugin.Ref {
	f.t.Helper()
	spec := newSpec()
	for _, each := range change {
		each(spec)
	}
	made, err := f.Create(f.ctx(), spec, &events{})
	if err != nil {
		f.t.Fatalf("create: %v", err)
	}
	return plugin.Ref{ID: made.ID, Handle: made.Handle}
}

// createKilledAfter begins a create with another process of the driver and kills that.
func (f *fixture) createKilledAfter(spec *plugin.SandboxSpec, delay time.Duration) {
	f.t.Helper()
	victim := startDriverIn(f.t, f.uid, f.stateDir, built, here)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = victim.Create(victim.ctx(), spec, &events{})
	}()
	time.Sleep(delay)
	if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
	<-ended
}

// result is what a command did.
type result struct {
	plugin.ExitStatus
	stdout, stderr string
	took           time.Duration
}

func shell(script string) *plugin.ExecRequest {
	return &plugin.ExecRequest{Argv: []string{"sh", "-c", script}}
}

// exec runs a command that must come to a result.
func (f *fixture) exec(ref plugin.Ref, request *plugin.ExecRequest, stdin ...string) result {
	f.t.Helper()
	done, err := f.tryExec(f.ctx(), ref, request, stdin...)
	if err != nil {
		f.t.Fatalf("exec %q: %v (stderr %q)", request.Argv, err, done.stderr)
	}
	return done
}

func (f *fixture) tryExec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdin ...string) (result, error) {
	var stdout, stderr bytes.Buffer
	stdio := &plugin.ExecIO{Stdout: &stdout, Stderr: &stderr}
	if len(stdin) > 0 {
		request.Stdin, stdio.Stdin = true, strings.NewReader(stdin[0])
	}
	began := time.Now()
	status, err := f.Exec(ctx, ref, request, stdio)
	return result{status, stdout.String(), stderr.String(), time.Since(began)}, err
}

// asUsers runs a test as root and as an ordinary user.
func asUsers(t *testing.T, test func(*testing.T, int)) {
	for name, uid := range map[string]int{"root": 0, "ordinary": otherUser} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, uid) })
	}
}
