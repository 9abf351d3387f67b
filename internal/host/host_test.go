//go:build unix

package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// driversDir returns a directory with test drivers of these names.
func driversDir(tb testing.TB, names ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range names {
		addDriver(tb, dir, name)
	}
	return dir
}

func addDriver(tb testing.TB, dir, name string) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, binaryPrefix+name)
	if err := os.Symlink(self, path); err != nil {
		tb.Fatal(err)
	}
	return path
}

// newHost returns a host that has these drivers, and a check at the test's end that
// no socket directory is left.
func newHost(tb testing.TB, change func(*Options), names ...string) *Host {
	tb.Helper()
	dir := driversDir(tb, names...)
	runtimeDir, err := os.MkdirTemp("/tmp", "sbhost")
	if err != nil {
		tb.Fatal(err)
	}
	options := Options{
		StateDir: tb.TempDir(),
		Drivers:  map[string]DriverConfig{},
		Environ:  []string{"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + runtimeDir},
		Version:  "9.9.9", Owner: "owner-1",
	}
	for _, name := range names {
		options.Drivers[name] = DriverConfig{Path: filepath.Join(dir, binaryPrefix+name)}
	}
	if change != nil {
		change(&options)
	}
	tb.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(runtimeDir, "sandboxctl", "*"))
		if err != nil || len(left) > 0 {
			tb.Errorf("sockets are left: %v %v", left, err)
		}
		if err := os.RemoveAll(runtimeDir); err != nil {
			tb.Error(err)
		}
	})
	return New(options)
}

func start(tb testing.TB, h *Host, name string) *Driver {
	tb.Helper()
	driver, err := h.Start(tb.Context(), name)
	if err != nil {
		tb.Fatalf("start %s: %v", name, err)
	}
	tb.Cleanup(driver.Close)
	return driver
}

func run(tb testing.TB, driver *Driver, argv ...string) string {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	status, err := driver.Exec(tb.Context(), plugin.Ref{}, &plugin.ExecRequest{Argv: argv}, &plugin.ExecIO{Stdout: &stdout, Stderr: &stderr})
	if err != nil || status.Code != 0 {
		tb.Fatalf("exec %v: %+v %v", argv, status, err)
	}
	return stdout.String()
}

func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	// A zombie is as good as gone; here its parent may be a test container's init
	// that does not reap.
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func waitGone(tb testing.TB, pid int, limit time.Duration) {
	tb.Helper()
	for deadline := time.Now().Add(limit); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("process %d is alive after %s", pid, limit)
		}
	}
}

func TestStartIntroducesBothSides(t *testing.T) {
	h := newHost(t, func(o *Options) {
		config := o.Drivers["good"]
		config.Settings = json.RawMessage(`{"region":"eu"}`)
		config.Environment = map[string]string{"FAULT_TOKEN": "MY_TOKEN"}
		o.Drivers["good"] = config
		o.Environ = append(o.Environ, "MY_TOKEN=secret-token", "FAULT_REGION=eu", "FAULT_TOKEN=wrong")
	}, "good")
	driver := start(t, h, "good")
	if driver.Name() != "good" || driver.Info.Version != "1.2.3" || driver.Source != SourceConfigured {
		t.Errorf("got %+v", driver)
	}
	if !slices.Equal(driver.Warnings, []string{"region is deprecated"}) {
		t.Errorf("warnings: %q", driver.Warnings)
	}
	var got struct {
		Settings    string            `json:"settings"`
		Environment map[string]string `json:"environment"`
		StateDir    string            `json:"state_dir"`
		Owner       string            `json:"owner"`
		Version     string            `json:"version"`
	}
	if err := json.Unmarshal([]byte(run(t, driver, "config")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Settings != `{"region":"eu"}` || got.Owner != "owner-1" || got.Version != "9.9.9" {
		t.Errorf("got %+v", got)
	}
	if len(got.Environment) != 2 || got.Environment["FAULT_TOKEN"] != "secret-token" || got.Environment["FAULT_REGION"] != "eu" {
		t.Errorf("environment: %v", got.Environment)
	}
	info, err := os.Stat(got.StateDir)
	if err != nil || info.Mode().Perm() != 0o700 || filepath.Base(got.StateDir) != "good" {
		t.Errorf("state dir %s: %v %v", got.StateDir, info, err)
	}
}

func TestMappingOfAnUnknownVariableIsRefused(t *testing.T) {
	h := newHost(t, func(o *Options) {
		config := o.Drivers["good"]
		config.Environment = map[string]string{"FAULT_TOKN": "MY_TOKEN"}
		o.Drivers["good"] = config
	}, "good")
	_, err := h.Start(t.Context(), "good")
	wantStartError(t, err, ReasonConfiguration, "FAULT_TOKN")
}

func TestDriversErrorAboutItsConfigurationIsItsOwn(t *testing.T) {
	_, err := newHost(t, nil, "locked").Start(t.Context(), "locked")
	var typed *plugin.Error
	if !errors.As(err, &typed) || typed.Kind != plugin.KindAuth || typed.Hint != "set FAULT_TOKEN" {
		t.Errorf("got %#v", err)
	}
}

// A driver that lacks its token still says which variable it would be in.
func TestUnconfiguredDriverSaysWhoItIs(t *testing.T) {
	driver, err := newHost(t, nil, "locked").StartUnconfigured(t.Context(), "locked")
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	if driver.Info.Name != "locked" || len(driver.Info.Env) == 0 {
		t.Errorf("got %+v", driver.Info)
	}
}

// Everything but the list stays with the host, also what go-plugin itself would
// trip over when sandboxctl runs below another program that uses it.
func TestEnvironmentDoesNotLeak(t *testing.T) {
	h := newHost(t, func(o *Options) {
		o.Environ = append(o.Environ,
			"HOME=/home/me", "LANG=C.UTF-8", "LC_ALL=C", "https_proxy=http://proxy:1", "NO_COLOR=1",
			"AWS_SECRET_ACCESS_KEY=leak", "FAULT_TOKEN=leak", "SANDBOXCTL_STATE_DIR=leak", "LD_PRELOAD=leak",
			"PLUGIN_CLIENT_CERT=leak", "PLUGIN_MULTIPLEX_GRPC=true", "PLUGIN_UNIX_SOCKET_DIR=/leak",
			"PLUGIN_PROTOCOL_VERSIONS=7", "SANDBOXCTL_DRIVER_COOKIE=leak")
	}, "good")
	var environment []string
	if err := json.Unmarshal([]byte(run(t, start(t, h, "good"), "environment")), &environment); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		if strings.Contains(value, "leak") {
			t.Errorf("leaked %s", pair)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		"HOME", "LANG", "LC_ALL", "NO_COLOR", "PATH", "PLUGIN_MAX_PORT", "PLUGIN_MIN_PORT", "PLUGIN_PROTOCOL_VERSIONS",
		"PLUGIN_UNIX_SOCKET_DIR", "SANDBOXCTL_DRIVER_COOKIE", "XDG_RUNTIME_DIR", "https_proxy",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got  %v\nwant %v", names, want)
	}
}

func TestStdinIsNotInherited(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	saved := os.Stdin
	os.Stdin = read
	defer func() { os.Stdin = saved; _ = read.Close() }()
	if _, err := write.WriteString("for the command"); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if got := run(t, start(t, newHost(t, nil, "good"), "good"), "stdin"); got != "0 <nil>" {
		t.Errorf("the driver read %q", got)
	}
}

func TestDebugLogHasTheDriversLinesButNoSecrets(t *testing.T) {
	var log bytes.Buffer
	h := newHost(t, func(o *Options) {
		o.DebugLog = &log
		o.Environ = append(o.Environ, `FAULT_TOKEN=se"cret-token`)
	}, "good")
	driver := start(t, h, "good")
	driver.Close()
	if text := log.String(); !strings.Contains(text, `configured: token="***"`) || strings.Contains(text, "cret-token") {
		t.Errorf("log: %s", text)
	}
}

func TestDevOverrideWarns(t *testing.T) {
	dir := driversDir(t, "good")
	var warnings []string
	h := newHost(t, func(o *Options) {
		o.DevOverrides = map[string]string{"good": dir}
		o.Warn = func(message string) { warnings = append(warnings, message) }
	})
	if driver := start(t, h, "good"); driver.Source != SourceDevOverride {
		t.Errorf("source %s", driver.Source)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], dir) {
		t.Errorf("warnings: %q", warnings)
	}
}

func TestStartObeysItsContext(t *testing.T) {
	h := newHost(t, nil, "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := h.Start(ctx, "hangs")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > startLimit {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func TestEachFailsByDriver(t *testing.T) {
	h := newHost(t, nil, "good", "failing", "exits", "other")
	names := []string{"good", "failing", "missing", "exits", "other"}
	seen := make(chan string, len(names))
	failures := h.Each(t.Context(), names, 2, func(ctx context.Context, driver *Driver) error {
		list, err := driver.List(ctx, plugin.ListRequest{})
		if err == nil {
			seen <- list.Sandboxes[0].Name
		}
		return err
	})
	close(seen)
	var rows []string
	for name := range seen {
		rows = append(rows, name)
	}
	slices.Sort(rows)
	if !slices.Equal(rows, []string{"good", "other"}) {
		t.Errorf("rows of %v", rows)
	}
	if len(failures) != 3 || failures[0].Driver != "failing" || failures[1].Driver != "missing" || failures[2].Driver != "exits" {
		t.Fatalf("failures: %v", failures)
	}
	if plugin.KindOf(failures[0].Err) != plugin.KindUnavailable {
		t.Errorf("failing: %v", failures[0].Err)
	}
	var unknown *UnknownDriverError
	if !errors.As(failures[1].Err, &unknown) || !slices.Contains(unknown.Known, "good") {
		t.Errorf("missing: %v", failures[1].Err)
	}
	wantStartError(t, failures[2].Err, ReasonExited, "exit status 3")
}
