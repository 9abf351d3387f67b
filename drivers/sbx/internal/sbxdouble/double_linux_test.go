package sbxdouble

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	os.Exit(RunTests(m))
}

type answer struct {
	code           int
	stdout, stderr string
}

func (a answer) String() string {
	return fmt.Sprintf("exit %d, stdout %q, stderr %q", a.code, a.stdout, a.stderr)
}

func run(t *testing.T, d *Installed, stdin string, args ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.Path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func must(t *testing.T, d *Installed, args ...string) string {
	t.Helper()
	a := run(t, d, "", args...)
	if a.code != 0 {
		t.Fatalf("sbx %q: exit %d: %s%s", args, a.code, a.stdout, a.stderr)
	}
	return a.stdout
}

func ready(t *testing.T, c Config) (*Installed, string) {
	t.Helper()
	if c.Preset == "" {
		c.Preset = PresetDenyAll
	}
	d := Install(t, c)
	workspace := t.TempDir()
	must(t, d, "create", "--name", "box", "-m", "2g", "shell", workspace)
	return d, workspace
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestExecIsExactAndPassesTheExitCode(t *testing.T) {
	d, _ := ready(t, Config{})
	a := run(t, d, "", "exec", "box", "sh", "-c", `printf 'a\n\nb\000'; printf err >&2; exit 7`)
	if want := (answer{7, "a\n\nb\x00", "err"}); a != want {
		t.Errorf("got %v, want %v", a, want)
	}
	if a := run(t, d, "in\x00put", "exec", "box", "head", "-c", "6"); a.stdout != "in\x00put" {
		t.Errorf("stdin without -i did not arrive: %q", a.stdout)
	}
	if a := run(t, d, "", "exec", "box", "sh", "-c", "kill -9 $$"); a.code != 137 {
		t.Errorf("killed command: exit %d", a.code)
	}
	if a := run(t, d, "", "exec", "box", "no-such-program"); a.code != 127 || !strings.Contains(a.stdout, "not found") {
		t.Errorf("missing executable: %v", a)
	}
}

func TestGuestIsApartFromTheHost(t *testing.T) {
	d, workspace := ready(t, Config{})
	marker := fmt.Sprintf("/var/tmp/sbxdouble-%d", time.Now().UnixNano())
	must(t, d, "exec", "box", "sh", "-c", "touch "+marker+" made; test ! -e "+d.Config.StateDir)
	if _, err := os.Stat(marker); err == nil {
		t.Error("a guest file landed on the host")
	}
	if _, err := os.Stat(filepath.Join(workspace, "made")); err != nil {
		t.Error("the workspace is not shared:", err)
	}
	if a := run(t, d, "", "exec", "-u", "root", "box", "touch", "/usr/bin/x"); a.code == 0 {
		t.Error("the host's programs are writable")
	}
	if got := must(t, d, "exec", "box", "sh", "-c", "echo $$ $(ls /sys 2>&1 | wc -l)"); strings.TrimSpace(got) == "" {
		t.Error("no output")
	}
}

func TestAKilledClientLeavesTheCommandRunning(t *testing.T) {
	d, workspace := ready(t, Config{})
	beat := filepath.Join(workspace, "beat")
	cmd := exec.Command(d.Path, "exec", "box", "sh", "-c", "while :; do echo x >> beat; sleep 0.02; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(beat)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	until(t, "first beat", func() bool { return size() > 0 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	before := size()
	until(t, "a beat after the client died", func() bool { return size() > before+4 })
	must(t, d, "stop", "box")
	stopped := size()
	time.Sleep(60 * time.Millisecond)
	if size() != stopped {
		t.Error("stop left the command running")
	}
}

func TestStoppedSandboxStartsOnExec(t *testing.T) {
	for _, survive := range []bool{false, true} {
		seed := int64(0)
		if survive {
			seed = 1 << 2
		}
		d, _ := ready(t, Config{Seed: seed})
		must(t, d, "policy", "allow", "network", "--sandbox", "box", "example.com")
		must(t, d, "exec", "-u", "root", "box", "touch", "/root/kept")
		first := must(t, d, "exec", "box", "cat", "/proc/sys/kernel/random/boot_id")
		must(t, d, "stop", "box")
		if d.Running("box") {
			t.Fatal("still running")
		}
		a := run(t, d, "", "exec", "-u", "root", "box", "sh", "-c", "ls /root/kept; cat /proc/sys/kernel/random/boot_id")
		if a.code != 0 || !strings.Contains(a.stderr, "Sandbox box started successfully\n") {
			t.Errorf("restart: %v", a)
		}
		if !strings.HasPrefix(a.stdout, "/root/kept\n") || strings.Contains(a.stdout, first) {
			t.Errorf("after restart: %q, first boot %q", a.stdout, first)
		}
		rules := must(t, d, "policy", "ls", "box", "--json")
		if got := strings.Contains(rules, "example.com"); got != survive {
			t.Errorf("rule survived: %v, want %v", got, survive)
		}
	}
}

func TestIdleSandboxStops(t *testing.T) {
	d, _ := ready(t, Config{IdleStop: 50 * time.Millisecond})
	until(t, "auto-stop", func() bool { return !d.Running("box") })
	if list := must(t, d, "ls", "--json"); !strings.Contains(list, `"status": "stopped"`) {
		t.Error(list)
	}
	d2, _ := ready(t, Config{IdleStop: 50 * time.Millisecond, KeepUnused: true})
	must(t, d2, "exec", "box", "sleep", "0.2")
	until(t, "auto-stop after a session", func() bool { return !d2.Running("box") })
}

func TestBackgroundProcessOutlivesItsExec(t *testing.T) {
	d, workspace := ready(t, Config{})
	started := time.Now()
	must(t, d, "exec", "box", "sh", "-c", "(sleep 0.3; touch late; sleep 300) & echo up")
	if time.Since(started) > time.Minute {
		t.Error("exec waited for the background process")
	}
	until(t, "the background process", func() bool { _, err := os.Stat(filepath.Join(workspace, "late")); return err == nil })
}

func TestRejections(t *testing.T) {
	d, workspace := ready(t, Config{Generation: Gen035})
	must(t, d, "policy", "allow", "network", "--sandbox", "box", "a.com,b.com")
	tests := []struct {
		want string
		args []string
	}{
		{"unknown flag: --deny-network", []string{"create", "--deny-network"}},
		{"unknown flag: --bogus", []string{"exec", "--bogus", "box", "true"}},
		{"accepts 1 arg(s), received 2", []string{"policy", "allow", "network", "--sandbox", "box", "c.com", "d.com"}},
		{`sandbox "none" not found`, []string{"policy", "allow", "network", "--sandbox", "none", "c.com"}},
		{"duplicate rule", []string{"policy", "allow", "network", "--sandbox", "box", "z.com,a.com"}},
		{"use --force", []string{"rm", "box"}},
		{"must be absolute", []string{"cp", "/etc/hostname", "box:relative"}},
		{"below the minimum of 1 GiB", []string{"create", "--name", "b2", "-m", "512m", "shell", workspace}},
		{"invalid sandbox name", []string{"create", "--name", "a_b", "shell", workspace}},
		{"invalid sandbox name", []string{"create", "--name", "default", "shell", workspace}},
		{"requires at least 2 arg(s)", []string{"create", "shell"}},
		{"no such directory", []string{"create", "--name", "b3", "shell", "/no/such"}},
		{"already exists", []string{"create", "--name", "box", "shell", workspace}},
		{"no sandbox named 'none'", []string{"exec", "none", "true"}},
		{"requires at least 2 arg(s)", []string{"exec", "box"}},
		{"--branch is no longer supported", []string{"create", "--branch", "shell", workspace}},
		{"no scoped policy found", []string{"policy", "rm", "network", "--sandbox", "other", "--resource", "a.com"}},
		{"not a TTY", []string{"exec", "-it", "box", "true"}},
	}
	for _, test := range tests {
		a := run(t, d, "", test.args...)
		if a.code == 0 || !strings.Contains(a.stderr, test.want) {
			t.Errorf("sbx %q: %v, want an error with %q", test.args, a, test.want)
		}
	}
	if rules := must(t, d, "policy", "ls", "box", "--json"); strings.Contains(rules, "z.com") {
		t.Error("part of a batch with a duplicate was added")
	}
	d2 := Install(t, Config{Generation: Gen042})
	if a := run(t, d2, "", "create", "--name", "b1", "shell", workspace); !strings.Contains(a.stderr, "global network policy has not been initialized") {
		t.Errorf("without a policy: %v", a)
	}
}

func TestNoise(t *testing.T) {
	d := Install(t, Config{Preset: PresetDenyAll, DaemonHeader: "stdout", Banner: "stdout", WarnLine: "stderr"})
	a := run(t, d, "", "ls", "--json")
	if !strings.HasPrefix(a.stdout, "Starting sandboxd daemon...\n") || !strings.HasSuffix(a.stdout, "╯\n") || !strings.HasPrefix(a.stderr, "WARN: ") {
		t.Errorf("%v", a)
	}
}

func TestCreateFaultsComeInOrder(t *testing.T) {
	d := Install(t, Config{Preset: PresetDenyAll, CreateFaults: []string{CreateRateLimited, CreateLeaksName, ""}})
	workspace := t.TempDir()
	if a := run(t, d, "", "create", "--name", "one", "shell", workspace); !strings.Contains(a.stderr, "429") {
		t.Errorf("%v", a)
	}
	if a := run(t, d, "", "create", "--name", "two", "shell", workspace); a.code != 1 {
		t.Errorf("%v", a)
	}
	if a := run(t, d, "", "create", "--name", "two", "shell", workspace); !strings.Contains(a.stderr, "already exists") {
		t.Errorf("a leaked name was free: %v", a)
	}
	must(t, d, "create", "--name", "one", "shell", workspace)
}

func TestProxyEnforcesTheRulesLive(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may dial in the host's network from a machine")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "http://")
	d, _ := ready(t, Config{})
	get := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET %s/ HTTP/1.0\r\n\r\n' >&3; head -1 <&3`, server.URL)
	fetch := func() string { return run(t, d, "", "exec", "box", "bash", "-c", get).stdout }
	if got := fetch(); !strings.Contains(got, "403") {
		t.Errorf("before: %q", got)
	}
	must(t, d, "policy", "allow", "network", "--sandbox", "box", target)
	if got := fetch(); !strings.Contains(got, "200") {
		t.Errorf("allowed: %q", got)
	}
	must(t, d, "policy", "rm", "network", "--sandbox", "box", "--resource", target)
	if got := fetch(); !strings.Contains(got, "403") {
		t.Errorf("after: %q", got)
	}
	direct := fmt.Sprintf("exec 3<>/dev/tcp/%s", strings.Replace(target, ":", "/", 1))
	if a := run(t, d, "", "exec", "box", "bash", "-c", direct); a.code == 0 {
		t.Error("the guest reached the host past the proxy")
	}
}

func TestDenyBeatsAllow(t *testing.T) {
	d := Install(t, Config{Preset: PresetAllowAll, Seed: 1 << 11})
	workspace := t.TempDir()
	must(t, d, "create", "--name", "box", "--deny-network", "**", "shell", workspace)
	must(t, d, "policy", "allow", "network", "--sandbox", "box", "example.com")
	if a := run(t, d, "", "policy", "check", "network", "--sandbox", "box", "example.com"); a.code != 1 || a.stdout != "Denied: example.com\n" {
		t.Errorf("%v", a)
	}
	if got := must(t, d, "policy", "check", "network", "example.com"); got != "Allowed: example.com\n" {
		t.Errorf("global: %q", got)
	}
}

func TestCopy(t *testing.T) {
	d, _ := ready(t, Config{})
	host := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(host, []byte("text\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, d, "cp", host, "box:/home/agent/copied")
	if got := must(t, d, "exec", "-u", "root", "box", "stat", "-c", "%a %u", "/home/agent/copied"); got != "600 0\n" {
		t.Errorf("mode and owner of an in-copy: %q", got)
	}
	if os.Geteuid() == 0 {
		if a := run(t, d, "", "exec", "box", "cat", "/home/agent/copied"); a.code == 0 {
			t.Error("the guest's user could read root's private file")
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	must(t, d, "cp", "box:/home/agent/copied", out)
	if text, err := os.ReadFile(out); err != nil || string(text) != "text\x00" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestSignIn(t *testing.T) {
	d := Install(t, Config{Preset: PresetDenyAll, LoggedOut: true})
	if a := run(t, d, "", "ls"); a.code != 1 || !strings.Contains(a.stderr, "not authenticated") {
		t.Errorf("%v", a)
	}
	if got := must(t, d, "version"); !strings.Contains(got, "v0.45.0") {
		t.Error(got)
	}
}

func TestCPUs(t *testing.T) {
	d := Install(t, Config{Preset: PresetDenyAll})
	must(t, d, "create", "--name", "box", "--cpus", "1", "shell", t.TempDir())
	if got := must(t, d, "exec", "box", "nproc"); got != "1\n" {
		t.Errorf("nproc: %q", got)
	}
}

// A guest that opens sockets by itself is under the same rules.
func TestRawConnections(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may dial in the host's network from a machine")
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
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
			fmt.Fprint(conn, "hello\n")
			conn.Close()
		}
	}()
	address := hostAddress(t)
	port := listener.Addr().(*net.TCPAddr).Port
	d, _ := ready(t, Config{Preset: PresetDenyAll})
	fetch := fmt.Sprintf("cat </dev/tcp/%s/%d", address, port)
	if a := run(t, d, "", "exec", "box", "bash", "-c", fetch); a.code == 0 {
		t.Errorf("denied: %v", a)
	}
	d.Change(t, func(c *Config) { c.AcceptDenied = true })
	must(t, d, "stop", "box")
	if a := run(t, d, "", "exec", "box", "bash", "-c", fetch); a.code != 0 || a.stdout != "" {
		t.Errorf("denied, accepted and closed: %v", a)
	}
	must(t, d, "policy", "allow", "network", "--sandbox", "box", address)
	if a := run(t, d, "", "exec", "box", "bash", "-c", fetch); a.stdout != "hello\n" {
		t.Errorf("allowed: %v", a)
	}
}

// hostAddress is an address of this machine that is not its loopback.
func hostAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has no address but its loopback")
	return ""
}
