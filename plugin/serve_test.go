package plugin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
)

// asDriver makes the test binary a driver.
const asDriver = "SANDBOXCTL_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		Serve(&fakeDriver{
			info: Info{Name: "fake", Version: "1.2.3", Description: "a fake", Capabilities: Capabilities{Exec: ExecSupport{MaxTimeout: time.Minute}}},
			exec: func(ctx context.Context, _ Ref, _ *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
				stdio.Started(0)
				<-ctx.Done()
				// What a real driver does here is kill the guest's command.
				err := os.WriteFile(os.Getenv("TMPDIR")+"/cleaned", nil, 0o600)
				return ExitStatus{}, errors.Join(ctx.Err(), err)
			},
		})
	}
	os.Exit(m.Run())
}

func driverCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0], args...)
	command.Env = []string{asDriver + "=1", "TMPDIR=" + t.TempDir()}
	return command
}

func TestADriverRunByHandExplainsItself(t *testing.T) {
	for _, test := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{nil, 2, "", "started by sandboxctl"},
		{[]string{"--version"}, 0, "sandboxctl-driver-fake 1.2.3 (protocol 1)\n", ""},
		{[]string{"--what"}, 2, "", "--describe"},
	} {
		command := driverCommand(t, test.args...)
		var stdout, stderr bytes.Buffer
		command.Stdout, command.Stderr = &stdout, &stderr
		_ = command.Run()
		if command.ProcessState.ExitCode() != test.code || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", test.args, command.ProcessState.ExitCode(), stdout.String(), stderr.String())
		}
	}
}

func TestDescribeIsJSON(t *testing.T) {
	out, err := driverCommand(t, "--describe").Output()
	if err != nil {
		t.Fatal(err)
	}
	var described struct {
		Name         string
		Capabilities struct {
			Exec struct {
				MaxTimeout string `json:"max_timeout"`
			}
		}
	}
	if err := json.Unmarshal(out, &described); err != nil || described.Name != "fake" || described.Capabilities.Exec.MaxTimeout != "60s" {
		t.Errorf("got %s (%v)", out, err)
	}
}

// start starts the driver as a host does and returns its client and socket directory.
func start(t *testing.T, command *exec.Cmd) (*goplugin.Client, *Client, string) {
	t.Helper()
	sockets, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	dir := filepath.Join(sockets, "plugin-dir1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	command.Env = append(command.Env, goplugin.EnvUnixSocketDir+"="+dir)
	host := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: Handshake(), VersionedPlugins: HostServices(), Cmd: command, SkipHostEnv: true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, Logger: hclog.NewNullLogger(),
	})
	t.Cleanup(host.Kill)
	protocol, err := host.Client()
	if err != nil {
		t.Fatal(err)
	}
	dispensed, err := protocol.Dispense(ServiceName)
	if err != nil {
		t.Fatal(err)
	}
	return host, dispensed.(*Client), dir
}

func exited(t *testing.T, host *goplugin.Client, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !host.Exited() {
		if time.Now().After(deadline) {
			t.Fatalf("the driver still runs after %s", within)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestSIGTERMLetsACallCleanUp(t *testing.T) {
	command := driverCommand(t)
	tmp := strings.TrimPrefix(command.Env[1], "TMPDIR=")
	host, client, sockets := start(t, command)
	done := make(chan error, 1)
	started := make(chan struct{})
	stdio := discardIO()
	stdio.Started = func(time.Duration) { close(started) }
	go func() {
		_, err := client.Exec(context.Background(), Ref{}, &ExecRequest{Argv: []string{"x"}}, stdio)
		done <- err
	}()
	<-started
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the call ended well though its driver was stopped")
	}
	exited(t, host, 30*time.Second)
	if _, err := os.Stat(filepath.Join(tmp, "cleaned")); err != nil {
		t.Errorf("the call did not clean up: %v", err)
	}
	if _, err := os.Stat(sockets); !os.IsNotExist(err) {
		t.Errorf("the socket directory is still there: %v", err)
	}
}

func TestADriverEndsWhenItsHostIsGone(t *testing.T) {
	command := driverCommand(t)
	host, client, sockets := start(t, command)
	if _, err := client.Info(context.Background()); err != nil {
		t.Fatal(err)
	}
	protocol, err := host.Client()
	if err != nil {
		t.Fatal(err)
	}
	// As when the host is killed: the connection ends without a word.
	if err := protocol.(*goplugin.GRPCClient).Conn.Close(); err != nil {
		t.Fatal(err)
	}
	exited(t, host, 30*time.Second)
	if _, err := os.Stat(sockets); !os.IsNotExist(err) {
		t.Errorf("the socket directory is still there: %v", err)
	}
}

func TestDebugPrintsHowToAttach(t *testing.T) {
	command := driverCommand(t, "-debug")
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, stdout)
	value, _ := strings.CutPrefix(strings.TrimSpace(line), ReattachEnv+"=")
	var attach map[string]ReattachConfig
	if err := json.Unmarshal([]byte(strings.Trim(value, "'")), &attach); err != nil || attach["fake"].Address == "" || attach["fake"].ProtocolVersion != 1 {
		t.Errorf("it printed %q (%v)", line, err)
	}
}
