package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// maxReceive is the largest message a driver takes. Data comes in chunks of at most
// 256 KiB; gRPC's own 4 MiB would be too little for a large environment.
const maxReceive = 16 << 20

// stopLimit is how long calls under way may clean up when the process shall stop.
// The host counts on a driver being gone within two seconds of its own death.
const stopLimit = 1500 * time.Millisecond

// Serve runs a driver and does not return. Started by sandboxctl it answers the
// protocol until sandboxctl is done or gone; started by a person it explains itself,
// or answers --version, --describe and -debug.
func Serve(driver Driver) {
	os.Exit(serve(driver, os.Args[1:], os.Stdout, os.Stderr))
}

func serve(driver Driver, args []string, stdout, stderr *os.File) int {
	cookie := Handshake()
	if os.Getenv(cookie.MagicCookieKey) == cookie.MagicCookieValue {
		return serveHost(driver, stderr)
	}
	info := describe(driver)
	switch strings.TrimLeft(strings.Join(args, " "), "-") {
	case "version":
		fmt.Fprintf(stdout, "sandboxctl-driver-%s %s (protocol %d)\n", info.Name, info.Version, ProtocolVersion)
		return 0
	case "describe":
		return printDescription(info, stdout, stderr)
	case "debug":
		return serveDebugger(driver, stdout, stderr)
	}
	fmt.Fprintf(stderr, `This is sandboxctl's driver %q, version %s: %s
It is started by sandboxctl and is of no use alone. Put it where sandboxctl finds it
(see "sandboxctl driver ls") and name it: sandboxctl create --driver %s
For its author: --version, --describe (what it can do, as JSON), -debug (serve until
interrupted and print how sandboxctl can attach).
`, info.Name, info.Version, info.Description, info.Name)
	return 2
}

// process is what the two ways of serving share.
type process struct {
	base   context.Context
	stop   context.CancelFunc
	calls  *calls
	logger *slog.Logger
}

func newProcess(stderr io.Writer) *process {
	base, stop := context.WithCancel(context.Background())
	logger := newLogger(stderr)
	return &process{base: base, stop: stop, calls: newCalls(base, logger), logger: logger}
}

func (p *process) serveConfig(driver Driver, options ...grpc.ServerOption) *goplugin.ServeConfig {
	return &goplugin.ServeConfig{
		HandshakeConfig:  Handshake(),
		VersionedPlugins: services(&server{driver: driver, logger: p.logger}),
		Logger:           hclog.NewNullLogger(),
		GRPCServer: func(given []grpc.ServerOption) *grpc.Server {
			given = append(given, options...)
			return grpc.NewServer(append(given,
				grpc.MaxRecvMsgSize(maxReceive),
				grpc.ChainUnaryInterceptor(p.calls.unary),
				grpc.ChainStreamInterceptor(p.calls.stream))...)
		},
	}
}

// serveHost answers sandboxctl. The process ends when go-plugin was told to, on
// SIGTERM, and when the host is gone; in each case calls may clean up first.
func serveHost(driver Driver, stderr *os.File) int {
	process := newProcess(stderr)
	defer process.stop()
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	defer signal.Stop(terminate)

	config := process.serveConfig(driver, grpc.StatsHandler(newLifeline(process.stop)))
	config.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: stderr, JSONFormat: true})
	served := make(chan struct{})
	go func() {
		defer close(served)
		goplugin.Serve(config)
	}()
	select {
	case <-served:
	case <-terminate:
	case <-process.base.Done():
	}
	process.stop()
	process.calls.wait(stopLimit)
	removeSocket(socketDir())
	return 0
}

// serveDebugger serves without a host, for a driver under a debugger.
func serveDebugger(driver Driver, stdout, stderr *os.File) int {
	process := newProcess(stderr)
	defer process.stop()
	interrupted, release := signal.NotifyContext(process.base, os.Interrupt, syscall.SIGTERM)
	defer release()
	reattach := make(chan *goplugin.ReattachConfig, 1)
	closed := make(chan struct{})
	config := process.serveConfig(driver)
	config.Test = &goplugin.ServeTestConfig{Context: interrupted, ReattachConfigCh: reattach, CloseCh: closed}
	go goplugin.Serve(config)
	select {
	case <-closed:
		fmt.Fprintln(stderr, "The driver could not open its socket. Set TMPDIR to a short, writable path.")
		return 1
	case attach := <-reattach:
		line, err := json.Marshal(map[string]ReattachConfig{describe(driver).Name: {
			Network: attach.Addr.Network(), Address: attach.Addr.String(), Pid: attach.Pid, ProtocolVersion: ProtocolVersion,
		}})
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		fmt.Fprintf(stdout, "%s='%s'\n", ReattachEnv, line)
	}
	<-closed
	process.calls.wait(stopLimit)
	return 0
}

// ReattachEnv is the variable in which sandboxctl looks for running drivers: a JSON
// object of driver name to ReattachConfig.
const ReattachEnv = "SANDBOXCTL_REATTACH_DRIVERS"

// ReattachConfig is how to reach a driver that is running already.
type ReattachConfig struct {
	Network         string `json:"network"`
	Address         string `json:"address"`
	Pid             int    `json:"pid"`
	ProtocolVersion int    `json:"protocol_version"`
}

func printDescription(info Info, stdout, stderr io.Writer) int {
	described, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(infoToWire(info))
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, described, "", "  "); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	fmt.Fprintln(stdout, indented.String())
	return 0
}

// isDriverMethod tells the driver's calls from go-plugin's own.
func isDriverMethod(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/"+driverpb.DriverService_ServiceDesc.ServiceName+"/")
}
