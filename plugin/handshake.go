package plugin

import (
	"context"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// ProtocolVersion is the major version of the protocol, as in the proto package's
// name, that this SDK speaks.
const ProtocolVersion = 1

// ServiceName is what the driver is called among a go-plugin process's services.
const ServiceName = "driver"

// LogEnv is the environment variable by which the host asks a driver for logs:
// debug, info, warn or error.
const LogEnv = "SANDBOXCTL_DRIVER_LOG"

// Handshake returns what tells a driver that sandboxctl, and not a person, started
// it. It is no secret and no security.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		MagicCookieKey:   "SANDBOXCTL_DRIVER_COOKIE",
		MagicCookieValue: "a9b1c1f4-sandboxctl-driver",
	}
}

// HostServices returns go-plugin's table of protocol versions for a host, which
// dispenses a *Client under ServiceName.
func HostServices() map[int]goplugin.PluginSet { return services(nil) }

func services(server *server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{
		ProtocolVersion: {ServiceName: &grpcPlugin{server: server}},
	}
}

// grpcPlugin joins both ends of the protocol to go-plugin.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server
}

func (p *grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, registrar *grpc.Server) error {
	driverpb.RegisterDriverServiceServer(registrar, p.server)
	return nil
}

func (p *grpcPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, connection *grpc.ClientConn) (any, error) {
	return NewClient(connection), nil
}
