//go:build unix

package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// hostRole makes the test binary a host that is to be killed; see kill_test.go.
const hostRole = "SANDBOXCTL_TEST_HOST"

// TestMain makes the test binary a driver when it is called like one. The name also
// says what is wrong with it: environment variables do not reach drivers.
func TestMain(m *testing.M) {
	if name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), binaryPrefix); ok {
		runDriver(strings.TrimSuffix(name, ".exe"))
	}
	if request := os.Getenv(hostRole); request != "" {
		runHost(request)
	}
	os.Exit(m.Run())
}

func runDriver(name string) {
	switch name {
	case "noise":
		fmt.Println("Hello \x1b[31mfrom init" + strings.Repeat("!", 200))
		hang()
	case "blank":
		fmt.Println()
		hang()
	case "silent":
		os.Exit(0)
	case "exits":
		fmt.Fprintln(os.Stderr, "first line\nno such \x1b[31mregion")
		os.Exit(3)
	case "panics":
		panic("no table for " + name)
	case "hangs":
		fmt.Fprintln(os.Stderr, "waiting for the licence server")
		hang()
	case "mute":
		os.Stdout.Close()
		hang()
	case "newer":
		fmt.Println("1|7|unix|/nowhere|grpc|")
		hang()
	case "older":
		fmt.Println("1|0|unix|/nowhere|grpc|")
		hang()
	case "netrpc":
		fmt.Println("1|1|unix|/nowhere|netrpc|")
		hang()
	case "certificate":
		fmt.Println("1|1|unix|/nowhere|grpc|" + "MIIB" + strings.Repeat("A", 100))
		hang()
	case "foreign":
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig: goplugin.HandshakeConfig{MagicCookieKey: "ANOTHER", MagicCookieValue: "cookie"},
			Plugins:         goplugin.PluginSet{},
		})
		os.Exit(1)
	case "stranger":
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig:  plugin.Handshake(),
			VersionedPlugins: map[int]goplugin.PluginSet{plugin.ProtocolVersion: {plugin.ServiceName: emptyService{}}},
			GRPCServer:       goplugin.DefaultGRPCServer,
		})
	case "debugged":
		os.Args = []string{os.Args[0], "-debug"}
	}
	plugin.Serve(&faultDriver{name: name})
}

// emptyService answers no call.
type emptyService struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (emptyService) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return nil }

func (emptyService) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.ErrUnsupported
}

// hang blocks without the runtime noticing a deadlock.
func hang() { time.Sleep(time.Hour) }

// faultDriver does in Exec what the command's first word says, in its own process.
type faultDriver struct {
	name   string
	config plugin.Config
}

func (d *faultDriver) Info() plugin.Info {
	info := plugin.Info{
		Name: d.name, Version: "1.2.3",
		Env: []plugin.EnvVar{{Name: "FAULT_TOKEN", Secret: true}, {Name: "FAULT_REGION"}},
	}
	switch d.name {
	case "misnamed":
		info.Name = "other"
	case "stuck":
		hang()
	}
	return info
}

func (d *faultDriver) Configure(_ context.Context, config plugin.Config) ([]string, error) {
	d.config = config
	if d.name == "locked" {
		return nil, plugin.Errorf(plugin.KindAuth, "no token").WithHint("set FAULT_TOKEN")
	}
	config.Logger.Debug("configured", "token", config.Environment["FAULT_TOKEN"])
	return []string{"region is deprecated"}, nil
}

func (d *faultDriver) Create(context.Context, *plugin.SandboxSpec, plugin.CreateEvents) (*plugin.Sandbox, error) {
	return &plugin.Sandbox{ID: "sb-aaaaaaaaaaaa", State: plugin.StateRunning}, nil
}

func (d *faultDriver) List(ctx context.Context, _ plugin.ListRequest) (*plugin.SandboxList, error) {
	if d.name == "failing" {
		return nil, plugin.Errorf(plugin.KindUnavailable, "the backend is down")
	}
	if _, limited := ctx.Deadline(); limited {
		return nil, plugin.Errorf(plugin.KindInternal, "the driver was told the host's deadline")
	}
	if d.name == "waiting" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &plugin.SandboxList{Sandboxes: []*plugin.Sandbox{{ID: "sb-aaaaaaaaaaaa", Name: d.name}}}, nil
}

func (d *faultDriver) Destroy(context.Context, plugin.Ref) (bool, error) { return false, nil }

func (d *faultDriver) Exec(ctx context.Context, _ plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	fail := func(err error) (plugin.ExitStatus, error) { return plugin.ExitStatus{}, err }
	switch request.Argv[0] {
	case "environment":
		if err := json.NewEncoder(stdio.Stdout).Encode(os.Environ()); err != nil {
			return fail(err)
		}
	case "config":
		if err := json.NewEncoder(stdio.Stdout).Encode(map[string]any{
			"settings": string(d.config.Settings), "environment": d.config.Environment, "state_dir": d.config.StateDir,
			"owner": d.config.Owner, "version": d.config.HostVersion,
		}); err != nil {
			return fail(err)
		}
	case "stdin":
		input, err := io.ReadAll(os.Stdin)
		fmt.Fprintf(stdio.Stdout, "%d %v", len(input), err)
	case "crash":
		for line := range 200 {
			fmt.Fprintf(realStderr, "log line %d\n", line)
		}
		go func() { panic("index out of range in " + request.Argv[1]) }()
		hang()
	case "quit":
		fmt.Fprintln(realStderr, "cannot go on with "+d.config.Environment["FAULT_TOKEN"])
		os.Exit(9)
	case "clean":
		// Waits for the cancel, then leaves a mark as a clean-up would.
		stdio.Started(0)
		<-ctx.Done()
		if err := os.WriteFile(request.Argv[1], nil, 0o600); err != nil {
			return fail(err)
		}
		return fail(ctx.Err())
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		stdio.Started(0)
		hang()
	case "grandchild":
		// Holds the driver's own stdout and stderr, in a session of its own.
		child := exec.Command("sleep", "60")
		child.Stderr = realStderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: request.Argv[1] == "session"}
		if err := child.Start(); err != nil {
			return fail(err)
		}
		fmt.Fprintln(stdio.Stdout, child.Process.Pid)
	}
	return plugin.Exited(0), nil
}

// realStderr is the process's own stderr, before go-plugin replaced os.Stderr.
var realStderr = os.Stderr

// runHost starts a driver, reports its process and socket, and stays, in the middle
// of an exec when the request says so.
func runHost(request string) {
	dir, argv, _ := strings.Cut(request, " ")
	h := New(Options{StateDir: dir, DevOverrides: map[string]string{"good": filepath.Join(dir, binaryPrefix+"good")}, Environ: os.Environ()})
	driver, err := h.Start(context.Background(), "good")
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	sub := driver.link.(*subprocess)
	report := func() { fmt.Println("running", sub.process.ID(), sub.socketDir) }
	if argv == "" {
		report()
		hang()
	}
	_, _ = driver.Exec(context.Background(), plugin.Ref{}, &plugin.ExecRequest{Argv: strings.Fields(argv)}, &plugin.ExecIO{
		Stdout: io.Discard, Stderr: io.Discard, Started: func(time.Duration) { report() },
	})
	hang()
}

// readWords reads one line of words.
func readWords(r io.Reader) ([]string, error) {
	line, err := bufio.NewReader(r).ReadString('\n')
	return strings.Fields(line), err
}
