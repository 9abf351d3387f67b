//go:build linux

package modal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/sandboxctl/sandboxctl/drivers/modal"
	"github.com/sandboxctl/sandboxctl/drivers/modal/internal/modaldouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// TestMain serves the driver when a host has started this binary as one, so that
// the tests talk to a driver in a process of its own, race detector included.
func TestMain(m *testing.M) {
	cookie := plugin.Handshake()
	if os.Getenv(cookie.MagicCookieKey) == cookie.MagicCookieValue {
		plugin.Serve(modal.New())
	}
	if err := modaldouble.BecomeRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bench is a driver in front of a double.
type bench struct {
	*plugin.Client
	double *modaldouble.Server
	stderr *lockedBuffer
}

type setup struct {
	double   modaldouble.Options
	settings map[string]string
	env      map[string]string // over the double's own
	stateDir string
}

func newBench(t *testing.T) *bench { return newBenchWith(t, setup{}) }

// newBenchWith makes the test parallel: most of them wait for something.
func newBenchWith(t *testing.T, s setup) *bench {
	t.Helper()
	t.Parallel()
	return newSerialBench(t, s)
}

func newSerialBench(t *testing.T, s setup) *bench {
	t.Helper()
	double, err := modaldouble.Start(s.double)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(double.Close)
	environment := make(map[string]string)
	for _, assignment := range double.Env() {
		name, value, _ := strings.Cut(assignment, "=")
		environment[name] = value
	}
	for name, value := range s.env {
		environment[name] = value
	}
	b := startDriver(t, s, environment)
	b.double = double
	return b
}

// startDriver starts the driver's process and configures it.
func startDriver(t *testing.T, s setup, environment map[string]string) *bench {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stderr := &lockedBuffer{}
	t.Cleanup(func() {
		if said := stderr.String(); strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic") {
			t.Errorf("the driver is broken:\n%s", said)
		}
	})
	// A driver that is killed leaves its socket in TMPDIR.
	sockets, err := os.MkdirTemp("", "modal")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	command := exec.Command(binary)
	// The race detector would let every driver linger for a second.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "TMPDIR=" + sockets}
	host := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  plugin.Handshake(),
		VersionedPlugins: plugin.HostServices(),
		Cmd:              command,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		SyncStderr:       stderr,
		SyncStdout:       stderr,
		Stderr:           stderr,
		SkipHostEnv:      true,
	})
	t.Cleanup(host.Kill)
	protocol, err := host.Client()
	if err != nil {
		t.Fatalf("start the driver: %v\n%s", err, stderr)
	}
	dispensed, err := protocol.Dispense(plugin.ServiceName)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Client: dispensed.(*plugin.Client), stderr: stderr}
	settings, err := json.Marshal(s.settings)
	if err != nil || s.settings == nil {
		settings = nil
	}
	if s.stateDir == "" {
		s.stateDir = t.TempDir()
	}
	config := plugin.Config{Settings: settings, Environment: environment, StateDir: s.stateDir, Owner: "owner-1"}
	// Not the test's own context, which has ended when a cleanup starts a driver.
	configuring, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := b.Configure(configuring, config); err != nil {
		t.Fatal(err)
	}
	return b
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func newSpec() *plugin.SandboxSpec {
	id := strings.ToLower(rand.Text()[:12])
	now := time.Now().UTC().Truncate(time.Second)
	return &plugin.SandboxSpec{
		RequestID: rand.Text(), ID: "sb-" + id, Name: "box-" + id, Owner: "owner-1",
		Image: "python:3.12-slim", Network: plugin.NetworkPolicy{Mode: plugin.NetworkNone},
		CreatedAt: now, ExpiresAt: now.Add(time.Hour),
	}
}

// recorder keeps what a create reports.
type recorder struct {
	mu       sync.Mutex
	handles  [][]byte
	progress []string
}

func (r *recorder) Created(handle []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handles = append(r.handles, handle)
}

func (r *recorder) Progress(p plugin.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = append(r.progress, p.Message)
}

func (r *recorder) Warn(string) {}

func (b *bench) create(t *testing.T, change func(*plugin.SandboxSpec)) plugin.Ref {
	t.Helper()
	spec := newSpec()
	if change != nil {
		change(spec)
	}
	sandbox, err := b.Create(t.Context(), spec, &recorder{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle}
}

// outcome is what came of a command.
type outcome struct {
	plugin.ExitStatus
	stdout, stderr string
	applied        time.Duration
	elapsed        time.Duration
}

func (b *bench) try(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdin io.Reader) (outcome, error) {
	var got outcome
	var stdout, stderr lockedBuffer
	begin := time.Now()
	status, err := b.Exec(ctx, ref, request, &plugin.ExecIO{
		Stdin: stdin, Stdout: &stdout, Stderr: &stderr,
		Started: func(applied time.Duration) { got.applied = applied },
	})
	got.ExitStatus, got.stdout, got.stderr, got.elapsed = status, stdout.String(), stderr.String(), time.Since(begin)
	return got, err
}

func (b *bench) run(t *testing.T, ref plugin.Ref, request *plugin.ExecRequest) outcome {
	t.Helper()
	got, err := b.try(t.Context(), ref, request, nil)
	if err != nil {
		t.Fatalf("%q: %v", request.Argv, err)
	}
	return got
}

func (b *bench) shell(t *testing.T, ref plugin.Ref, script string) outcome {
	t.Helper()
	return b.run(t, ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", script}})
}

// eventually waits for something that the double does on its own.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func wantKind(t *testing.T, err error, kind plugin.Kind) {
	t.Helper()
	if plugin.KindOf(err) != kind {
		t.Errorf("got %q (%v), want %q", plugin.KindOf(err), err, kind)
	}
}
