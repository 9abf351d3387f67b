//go:build linux

package opensandbox_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/guest"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// driverEnv makes this test binary the driver, so that tests speak to it as sandboxctl does.
const driverEnv = "OPENSANDBOX_TEST_DRIVER"

func TestMain(m *testing.M) {
	guest.RunIfChild()
	if os.Getenv(driverEnv) != "" {
		plugin.Serve(opensandbox.New())
	}
	os.Exit(m.Run())
}

// healthy is an installation that can enforce every policy.
var healthy = osbdouble.Knobs{APIKey: "test-key", Enforcement: egress.ModeDNSNFT}

func startDouble(t testing.TB, knobs osbdouble.Knobs) *osbdouble.Double {
	t.Helper()
	d, err := osbdouble.Start(knobs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// startDriver runs the driver as a process, unconfigured.
func startDriver(t testing.TB) *plugin.Client {
	t.Helper()
	client, _ := startDriverProcess(t)
	return client
}

func startDriverProcess(t testing.TB) (*plugin.Client, *os.Process) {
	t.Helper()
	// A driver that is killed leaves its socket in TMPDIR.
	sockets, err := os.MkdirTemp("", "osb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{driverEnv + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + sockets}
	gc := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: plugin.Handshake(), VersionedPlugins: plugin.HostServices(), Cmd: cmd,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, Logger: hclog.NewNullLogger(), SkipHostEnv: true,
	})
	t.Cleanup(gc.Kill)
	protocol, err := gc.Client()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := protocol.Dispense(plugin.ServiceName)
	if err != nil {
		t.Fatal(err)
	}
	return raw.(*plugin.Client), cmd.Process
}

// rig is a configured driver at a double.
type rig struct {
	*plugin.Client
	double *osbdouble.Double
	driver *os.Process
}

type option func(settings map[string]any, config *plugin.Config)

func withKey(key string) option {
	return func(_ map[string]any, c *plugin.Config) { c.Environment["OPEN_SANDBOX_API_KEY"] = key }
}

func withSetting(name string, value any) option {
	return func(s map[string]any, _ *plugin.Config) { s[name] = value }
}

func withStateDir(dir string) option {
	return func(_ map[string]any, c *plugin.Config) { c.StateDir = dir }
}

func newRig(t testing.TB, d *osbdouble.Double, options ...option) *rig {
	t.Helper()
	client, process := startDriverProcess(t)
	if _, err := client.Configure(t.Context(), configFor(t, d.URL(), options...)); err != nil {
		t.Fatal(err)
	}
	return &rig{Client: client, double: d, driver: process}
}

func configFor(t testing.TB, url string, options ...option) plugin.Config {
	t.Helper()
	settings := map[string]any{"endpoint": url}
	config := plugin.Config{
		Environment: map[string]string{"OPEN_SANDBOX_API_KEY": "test-key"},
		StateDir:    t.TempDir(), Owner: "owner1", Logger: slog.New(slog.DiscardHandler),
	}
	for _, o := range options {
		o(settings, &config)
	}
	var err error
	if config.Settings, err = json.Marshal(settings); err != nil {
		t.Fatal(err)
	}
	return config
}

// events records what Create reports.
type events struct {
	mu       sync.Mutex
	handles  [][]byte
	warnings []string
	progress []string
}

func (e *events) Created(h []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handles = append(e.handles, h)
}

func (e *events) Warn(m string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warnings = append(e.warnings, m)
}

func (e *events) Progress(p plugin.Progress) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.progress = append(e.progress, p.Message)
}

// newSpec is what the host sends for a create without flags, with an open network for speed of thought.
func newSpec(change ...func(*plugin.SandboxSpec)) *plugin.SandboxSpec {
	var b [8]byte
	_, _ = rand.Read(b[:])
	id := "sb-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:12]
	now := time.Now()
	spec := &plugin.SandboxSpec{
		RequestID: "req-" + id, ID: id, Name: "box-" + id, Owner: "owner1", Image: "python:3.12-slim",
		Network: plugin.NetworkPolicy{Mode: plugin.NetworkOpen}, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
	}
	for _, c := range change {
		c(spec)
	}
	return spec
}

func (r *rig) create(t testing.TB, change ...func(*plugin.SandboxSpec)) plugin.Ref {
	t.Helper()
	spec := newSpec(change...)
	box, err := r.Create(t.Context(), spec, &events{})
	if err != nil {
		t.Fatal(err)
	}
	return plugin.Ref{ID: spec.ID, Handle: box.Handle}
}

// result is what a command did.
type result struct {
	plugin.ExitStatus
	stdout, stderr string
	applied        time.Duration
	started        bool
}

func sh(text string) *plugin.ExecRequest {
	return &plugin.ExecRequest{Argv: []string{"sh", "-c", text}}
}

func (r *rig) exec(t testing.TB, ref plugin.Ref, req *plugin.ExecRequest) result {
	t.Helper()
	res, err := r.tryExec(t.Context(), ref, req, nil)
	if err != nil {
		t.Fatalf("%q: %v", req.Argv, err)
	}
	return res
}

func (r *rig) tryExec(ctx context.Context, ref plugin.Ref, req *plugin.ExecRequest, stdin io.Reader) (result, error) {
	var out, errs bytes.Buffer
	var res result
	status, err := r.Exec(ctx, ref, req, &plugin.ExecIO{
		Stdin: stdin, Stdout: &out, Stderr: &errs,
		Started: func(d time.Duration) { res.started, res.applied = true, d },
	})
	res.ExitStatus, res.stdout, res.stderr = status, out.String(), errs.String()
	return res, err
}

// wantKind checks an error's class and that its text, with its hint, mentions what a user needs.
func wantKind(t testing.TB, err error, kind plugin.Kind, mentions ...string) *plugin.Error {
	t.Helper()
	if plugin.KindOf(err) != kind {
		t.Fatalf("error of kind %q, want %q: %v", plugin.KindOf(err), kind, err)
	}
	typed, ok := err.(*plugin.Error)
	if !ok {
		t.Fatalf("untyped error %T: %v", err, err)
	}
	for _, m := range mentions {
		if !strings.Contains(typed.Message+" "+typed.Hint, m) {
			t.Errorf("%q does not mention %q (hint %q)", typed.Message, m, typed.Hint)
		}
	}
	return typed
}
