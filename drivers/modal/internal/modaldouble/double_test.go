//go:build linux

package modaldouble_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandboxctl/sandboxctl/drivers/modal/internal/modaldouble"
)

func TestMain(m *testing.M) {
	if err := modaldouble.BecomeRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// start serves a double and returns the vendor's Go client for it.
func start(t *testing.T, opts modaldouble.Options) (*modaldouble.Server, *modal.Client) {
	t.Helper()
	server, err := modaldouble.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	for _, assignment := range server.Env() {
		name, value, _ := strings.Cut(assignment, "=")
		t.Setenv(name, value)
	}
	client, err := modal.NewClientWithOptions(&modal.ClientParams{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return server, client
}

func create(t *testing.T, client *modal.Client, params *modal.SandboxCreateParams) *modal.Sandbox {
	t.Helper()
	sb, err := tryCreate(t, client, params)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func tryCreate(t *testing.T, client *modal.Client, params *modal.SandboxCreateParams) (*modal.Sandbox, error) {
	t.Helper()
	app, err := client.Apps.FromName(t.Context(), "app", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	return client.Sandboxes.Create(t.Context(), app, client.Images.FromRegistry("python:3.12-slim", nil), params)
}

type result struct {
	code           int
	stdout, stderr string
}

func execute(t *testing.T, sb *modal.Sandbox, params *modal.SandboxExecParams, argv ...string) result {
	t.Helper()
	process, err := sb.Exec(t.Context(), argv, params)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Stdin.Close(); err != nil && status.Code(err) != codes.FailedPrecondition {
		t.Fatal(err)
	}
	stdout, err := io.ReadAll(process.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := io.ReadAll(process.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	code, err := process.Wait(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return result{code, string(stdout), string(stderr)}
}

func TestCommandsRunForReal(t *testing.T) {
	_, client := start(t, modaldouble.Options{})
	sb := create(t, client, &modal.SandboxCreateParams{Env: map[string]string{"GREETING": "hi there"}, Workdir: "/work"})
	for _, test := range []struct {
		name   string
		params *modal.SandboxExecParams
		argv   []string
		want   result
	}{
		{"streams and code", nil, []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, result{3, "out\n", "err\n"}},
		{"signal", nil, []string{"sh", "-c", "kill -9 $$"}, result{137, "", ""}},
		{"sandbox environment", nil, []string{"printenv", "GREETING"}, result{0, "hi there\n", ""}},
		{"exec environment", &modal.SandboxExecParams{Env: map[string]string{"GREETING": "new"}}, []string{"printenv", "GREETING"}, result{0, "new\n", ""}},
		{"workdir", nil, []string{"pwd"}, result{0, "/work\n", ""}},
		{"own workdir", &modal.SandboxExecParams{Workdir: "/tmp"}, []string{"pwd"}, result{0, "/tmp\n", ""}},
		{"ends with the command", nil, []string{"sh", "-c", "sleep 60 & echo started"}, result{0, "started\n", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := execute(t, sb, test.params, test.argv...); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got := execute(t, sb, nil, "no-such-program"); got.code != 127 {
		t.Errorf("missing program: %+v", got)
	}
}

func TestGuestsAreApart(t *testing.T) {
	_, client := start(t, modaldouble.Options{})
	one := create(t, client, nil)
	two := create(t, client, &modal.SandboxCreateParams{BlockNetwork: true})
	if got := execute(t, one, nil, "sh", "-c", "echo mine >/tmp/f; ls /tmp"); got.stdout != "f\n" {
		t.Fatalf("first guest: %+v", got)
	}
	if got := execute(t, two, nil, "sh", "-c", "ls /tmp; ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev; ls /proc | grep -c '^[0-9]'"); !strings.HasPrefix(got.stdout, "1\n") {
		t.Errorf("second guest sees more than its own: %+v", got)
	}
	if got := execute(t, one, nil, "touch", "/usr/evil"); got.code == 0 {
		t.Error("the guest can write to the host's programs")
	}
}

func TestLimitsAreEnforced(t *testing.T) {
	if !mayMakeCgroups() {
		t.Skip("limits are enforced only where cgroups can be made")
	}
	_, client := start(t, modaldouble.Options{})
	sb := create(t, client, &modal.SandboxCreateParams{MemoryMiB: 64, MemoryLimitMiB: 64})
	if got := execute(t, sb, nil, "sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c"); strings.TrimSpace(got.stdout) == "200000000" {
		t.Errorf("200 MB fit into 64 MiB: %+v", got)
	}
	if got := execute(t, sb, nil, "echo", "alive"); got.stdout != "alive\n" {
		t.Errorf("the sandbox did not outlive it: %+v", got)
	}
}

func TestNetworkPoliciesAreEnforced(t *testing.T) {
	address := outsideAddress(t)
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	_, client := start(t, modaldouble.Options{})
	for name, test := range map[string]struct {
		params  modal.SandboxCreateParams
		host    string
		reaches bool
	}{
		"open":            {modal.SandboxCreateParams{}, address, true},
		"open, loopback":  {modal.SandboxCreateParams{}, "127.0.0.1", false},
		"blocked":         {modal.SandboxCreateParams{BlockNetwork: true}, address, false},
		"listed range":    {modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{Entries: []string{address + "/32"}}}, address, true},
		"another range":   {modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{Entries: []string{"203.0.113.0/24"}}}, address, false},
		"no range at all": {modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{}}, address, false},
	} {
		sb := create(t, client, &test.params)
		script := fmt.Sprintf("timeout 3 bash -c ': </dev/tcp/%s/%d'", test.host, port)
		if got := execute(t, sb, nil, "sh", "-c", script); (got.code == 0) != test.reaches {
			t.Errorf("%s: reaches %s: %v, want %v (%s)", name, test.host, got.code == 0, test.reaches, got.stderr)
		}
	}
}

// mayMakeCgroups tells the machine's root from that of a namespace.
func mayMakeCgroups() bool {
	groups, err := filepath.Glob("/sys/fs/cgroup/*")
	mapped, _ := os.ReadFile("/proc/self/uid_map")
	return err == nil && len(groups) > 0 && strings.Contains(string(mapped), "4294967295")
}

// outsideAddress is an address of this machine that is not its loopback.
func outsideAddress(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || !mayMakeCgroups() {
		t.Skip("guests have a network only where the server is the machine's root and there is an ip program")
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if ip, ok := address.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has no address beside its loopback")
	return ""
}

func TestStandardInput(t *testing.T) {
	_, client := start(t, modaldouble.Options{})
	sb := create(t, client, nil)
	process, err := sb.Exec(t.Context(), []string{"wc", "-c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for range 3 {
		if _, err := process.Stdin.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := process.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(process.Stdout)
	if err != nil || strings.TrimSpace(string(out)) != "3145728" {
		t.Errorf("wc read %q, %v", out, err)
	}
	if _, err := process.Wait(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Stdin.Write([]byte("late")); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("writing to a process that is over: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	_, client := start(t, modaldouble.Options{})
	sb := create(t, client, nil)
	process, err := sb.Exec(t.Context(), []string{"sh", "-c", "test -t 0 && stty size"}, &modal.SandboxExecParams{PTY: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(process.Stdout)
	if err != nil || strings.TrimSpace(string(out)) != "24 80" {
		t.Errorf("stty printed %q, %v", out, err)
	}
}

func TestFiles(t *testing.T) {
	_, client := start(t, modaldouble.Options{})
	sb := create(t, client, nil)
	fs, ctx := sb.Filesystem, t.Context()
	content := make([]byte, 3<<20)
	for i := range content {
		content[i] = byte(i)
	}
	if err := fs.WriteBytes(ctx, content, "/data/deep/file", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := fs.ReadBytes(ctx, "/data/deep/file", nil); err != nil || string(got) != string(content) {
		t.Errorf("read back %d bytes, %v", len(got), err)
	}
	info, err := fs.Stat(ctx, "/data/deep/file", nil)
	if err != nil || info.Permissions != "0644" || info.Size != int64(len(content)) || info.Type != modal.FileTypeFile {
		t.Errorf("stat: %+v, %v", info, err)
	}
	execute(t, sb, nil, "sh", "-c", "cd /data; ln -s deep link; touch .hidden")
	entries, err := fs.ListFiles(ctx, "/data", nil)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name+":"+string(e.Type))
	}
	if err != nil || strings.Join(names, " ") != ".hidden:file deep:directory link:symlink" {
		t.Errorf("list: %v, %v", names, err)
	}
	if _, err := fs.ReadBytes(ctx, "/data/none", nil); !errors.As(err, new(modal.SandboxFilesystemNotFoundError)) {
		t.Errorf("read a missing file: %v", err)
	}
	if _, err := fs.ReadBytes(ctx, "/data", nil); !errors.As(err, new(modal.SandboxFilesystemIsADirectoryError)) {
		t.Errorf("read a directory: %v", err)
	}
	if err := fs.Remove(ctx, "/data", &modal.SandboxFilesystemRemoveParams{Recursive: true}); err != nil {
		t.Error(err)
	}
	if _, err := fs.Stat(ctx, "/data", nil); !errors.As(err, new(modal.SandboxFilesystemNotFoundError)) {
		t.Errorf("stat after remove: %v", err)
	}
}

func TestListNamesAndTerminate(t *testing.T) {
	server, client := start(t, modaldouble.Options{})
	server.Configure(func(b *modaldouble.Behaviour) { b.PageSize = 2 })
	for i := range 5 {
		create(t, client, &modal.SandboxCreateParams{Name: fmt.Sprintf("box-%d", i), Tags: map[string]string{"n": fmt.Sprint(i % 2)}})
	}
	if _, err := tryCreate(t, client, &modal.SandboxCreateParams{Name: "box-1"}); !errors.As(err, new(modal.AlreadyExistsError)) {
		t.Errorf("a taken name: %v", err)
	}
	sb, err := client.Sandboxes.FromName(t.Context(), "app", "box-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := list(t, client, map[string]string{"n": "1"}); len(got) != 2 || got[1] != sb.SandboxID {
		t.Errorf("listed %v, want two with %s last", got, sb.SandboxID)
	}
	if code, err := sb.Terminate(t.Context(), &modal.SandboxTerminateParams{Wait: true}); err != nil || code != 137 {
		t.Errorf("terminate: %d, %v", code, err)
	}
	if got := list(t, client, nil); len(got) != 4 {
		t.Errorf("%d sandboxes are listed after one of 5 ended", len(got))
	}
	fresh, err := client.Sandboxes.FromID(t.Context(), sb.SandboxID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Exec(t.Context(), []string{"true"}, nil); !errors.As(err, new(modal.ConflictError)) {
		t.Errorf("exec in an ended sandbox: %v", err)
	}
}

func list(t *testing.T, client *modal.Client, tags map[string]string) []string {
	t.Helper()
	app, err := client.Apps.FromName(t.Context(), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	found, err := client.Sandboxes.List(t.Context(), &modal.SandboxListParams{AppID: app.AppID, Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for sb, err := range found {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sb.SandboxID)
	}
	return ids
}

func TestLifetimeAndIdleTimeoutEnd(t *testing.T) {
	_, client := start(t, modaldouble.Options{})
	short := create(t, client, &modal.SandboxCreateParams{Timeout: time.Second})
	idle := create(t, client, &modal.SandboxCreateParams{IdleTimeout: time.Second})
	if code, err := short.Wait(t.Context(), nil); err != nil || code != 124 {
		t.Errorf("lifetime: %d, %v", code, err)
	}
	if code, err := idle.Wait(t.Context(), nil); err != nil || code != 0 {
		t.Errorf("idle timeout: %d, %v", code, err)
	}
}
