package sbx

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// asDriver makes the test binary the driver's process.
const asDriver = "SBX_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		d := New()
		d.retryDelay = 5 * time.Millisecond
		plugin.Serve(d)
	}
	os.Exit(sbxdouble.RunTests(m))
}

// bench is a driver, in a process of its own and spoken to over the protocol, on a double.
type bench struct {
	*plugin.Client
	t        *testing.T
	double   *sbxdouble.Installed
	stateDir string
}

const (
	allYes = 1<<sbxdouble.UnknownBits - 1
	mixed  = 0b0101010101010
)

func newBench(t *testing.T, c sbxdouble.Config, settings ...string) *bench {
	t.Helper()
	if c.Preset == "" {
		c.Preset = sbxdouble.PresetDenyAll
	}
	double := sbxdouble.Install(t, c)
	b := &bench{t: t, double: double, stateDir: t.TempDir()}
	b.startDriver(double.Path, settings...)
	return b
}

// startDriver starts another driver process on the same state.
func (b *bench) startDriver(binary string, settings ...string) {
	b.t.Helper()
	client, stop := startDriver(b.t, b.stateDir, binary, settings...)
	b.t.Cleanup(stop)
	b.Client = client
}

func startDriver(t *testing.T, stateDir, binary string, settings ...string) (*plugin.Client, func()) {
	t.Helper()
	driver, err := start(t.Context(), stateDir, binary, settings...)
	if err != nil {
		t.Fatal(err)
	}
	return driver.client, driver.stop
}

// driverProcess is a driver process.
type driverProcess struct {
	client *plugin.Client
	pid    int
	stop   func()
}

func start(ctx context.Context, stateDir, binary string, settings ...string) (*driverProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// A socket's path may not be longer than about a hundred bytes.
	sockets, err := os.MkdirTemp("", "sbxt")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asDriver+"=1", "TMPDIR="+sockets, "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	process := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: plugin.Handshake(), VersionedPlugins: plugin.HostServices(), Cmd: cmd, SkipHostEnv: true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, Logger: hclog.NewNullLogger(), Stderr: os.Stderr,
	})
	driver := &driverProcess{stop: func() {
		process.Kill()
		os.RemoveAll(sockets)
	}}
	if driver.client, err = configured(ctx, process, stateDir, binary, settings); err != nil {
		driver.stop()
		return nil, err
	}
	driver.pid = cmd.Process.Pid
	return driver, nil
}

func configured(ctx context.Context, process *goplugin.Client, stateDir, binary string, settings []string) (*plugin.Client, error) {
	connection, err := process.Client()
	if err != nil {
		return nil, err
	}
	service, err := connection.Dispense(plugin.ServiceName)
	if err != nil {
		return nil, err
	}
	all := map[string]string{"binary": binary}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		all[name] = value
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	client := service.(*plugin.Client)
	_, err = client.Configure(ctx, plugin.Config{Settings: text, StateDir: stateDir, Owner: "owner", HostVersion: "test"})
	return client, err
}

func newSpec(mode plugin.NetworkMode, hosts ...string) *plugin.SandboxSpec {
	id := "sb-" + strings.ToLower(rand.Text()[:12])
	return &plugin.SandboxSpec{
		RequestID: "request-" + id, ID: id, Name: "box", Owner: "owner", Network: plugin.NetworkPolicy{Mode: mode, Hosts: hosts}, CreatedAt: time.Now(),
	}
}

// events records what a create reports.
type events struct {
	mu       sync.Mutex
	handles  []string
	warnings []string
	steps    []string
}

func (e *events) Created(handle []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handles = append(e.handles, string(handle))
}

func (e *events) Progress(p plugin.Progress) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps = append(e.steps, p.Message)
}

func (e *events) Warn(message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warnings = append(e.warnings, message)
}

func (b *bench) create(spec *plugin.SandboxSpec) plugin.Ref {
	b.t.Helper()
	sandbox, err := b.Create(b.t.Context(), spec, &events{})
	if err != nil {
		b.t.Fatalf("create: %s", told(err))
	}
	return plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle}
}

func (b *bench) open() plugin.Ref {
	b.t.Helper()
	return b.create(newSpec(plugin.NetworkNone))
}

type result struct {
	plugin.ExitStatus
	stdout, stderr string
}

func (b *bench) exec(ref plugin.Ref, request *plugin.ExecRequest, stdin string) (result, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	request.Stdin = stdin != ""
	status, err := b.Exec(ctx, ref, request, &plugin.ExecIO{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr})
	return result{status, stdout.String(), stderr.String()}, err
}

// sh runs a shell program that has to end with 0 and returns its stdout.
func (b *bench) sh(ref plugin.Ref, program string) string {
	b.t.Helper()
	r, err := b.exec(ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", program}}, "")
	if err != nil {
		b.t.Fatalf("%q: %s", program, told(err))
	}
	if r.Code != 0 {
		b.t.Fatalf("%q: %+v", program, r)
	}
	return r.stdout
}

// told is an error with its hint, as a user sees it.
func told(err error) string {
	var typed *plugin.Error
	if errors.As(err, &typed) {
		return string(typed.Kind) + ": " + typed.Message + " | " + typed.Hint
	}
	return err.Error()
}

func wantError(t *testing.T, err error, kind plugin.Kind, texts ...string) {
	t.Helper()
	if plugin.KindOf(err) != kind {
		t.Fatalf("error %v, want kind %s", err, kind)
	}
	for _, text := range texts {
		if !strings.Contains(told(err), text) {
			t.Errorf("error %q does not say %q", told(err), text)
		}
	}
}

// nothingLeft fails the test when a sandbox, a record or a workspace is left.
func (b *bench) nothingLeft() {
	b.t.Helper()
	if names := b.double.Sandboxes(b.t); len(names) != 0 {
		b.t.Errorf("sandboxes are left: %v", names)
	}
	left, err := filepath.Glob(filepath.Join(b.stateDir, "sandboxes", "*"))
	if err != nil || len(left) != 0 {
		b.t.Errorf("records are left: %v, %v", left, err)
	}
}

// called are the calls of the double whose first words are these.
func (b *bench) called(words ...string) []sbxdouble.Call {
	b.t.Helper()
	var calls []sbxdouble.Call
	for _, call := range b.double.Calls(b.t) {
		args := call.Args
		if len(args) > 0 && args[0] == "--no-input" {
			args = args[1:]
		}
		if len(args) >= len(words) && strings.Join(args[:len(words)], " ") == strings.Join(words, " ") {
			call.Args = args
			calls = append(calls, call)
		}
	}
	return calls
}

// sbx calls the double as a user would.
func (b *bench) sbx(args ...string) string {
	b.t.Helper()
	out, err := exec.Command(b.double.Path, args...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("sbx %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (b *bench) stop(name string) {
	b.t.Helper()
	b.sbx("stop", name)
}

// reaches asks the double for its verdict on a connection.
func (b *bench) reaches(name, host string) bool {
	b.t.Helper()
	out, _ := exec.Command(b.double.Path, "policy", "check", "network", "--sandbox", name, host).Output()
	verdict := string(out)
	if !strings.HasPrefix(verdict, "Allowed:") && !strings.HasPrefix(verdict, "Denied:") {
		b.t.Fatalf("policy check: %q", verdict)
	}
	return strings.HasPrefix(verdict, "Allowed:")
}
