package faultdriver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/sandboxctl/sandboxctl/plugin"
	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// Name is the driver's name.
const Name = "faulty"

// Serve answers the host. It returns when the host is done.
func Serve() error {
	fault, err := startFault()
	if err != nil {
		return err
	}
	protocol := plugin.ProtocolVersion
	switch fault {
	case "":
	case StartNoise:
		fmt.Println("Welcome to the faulty driver!")
	case StartExit:
		fmt.Fprintln(os.Stderr, "faulty: cannot find its shared library")
		os.Exit(3)
	case StartSlow:
		time.Sleep(time.Second)
	case StartHangs:
		time.Sleep(time.Hour)
	case StartProtocol:
		protocol = 99
	case StartGrandchild:
		grandchild := exec.Command("sleep", "60")
		grandchild.Stderr = os.Stderr
		if err := grandchild.Start(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%q is no fault of a start", fault)
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  plugin.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{protocol: {plugin.ServiceName: &wire{}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
		Logger:           hclog.NewNullLogger(),
	})
	return nil
}

// startFault reads the file beside the executable, under the name that it was started
// by, so that one binary can have links with different faults.
func startFault() (Fault, error) {
	content, err := os.ReadFile(os.Args[0] + ".fault")
	if os.IsNotExist(err) {
		return "", nil
	}
	return Fault(strings.TrimSpace(string(content))), err
}

// wire joins the service to go-plugin.
type wire struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (*wire) GRPCServer(_ *goplugin.GRPCBroker, registrar *grpc.Server) error {
	driverpb.RegisterDriverServiceServer(registrar, &service{})
	return nil
}

func (*wire) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("the faulty driver is no client")
}

// die ends the process as a crash would.
func die() {
	fmt.Fprintln(os.Stderr, "faulty: about to be killed")
	process, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		os.Exit(137)
	}
	select {}
}
