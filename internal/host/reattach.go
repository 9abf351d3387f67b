package host

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// running returns the drivers that the environment says are running already.
func (h *Host) running() (map[string]plugin.ReattachConfig, error) {
	text, ok := h.environ.lookup(plugin.ReattachEnv)
	if !ok || text == "" {
		return nil, nil
	}
	var running map[string]plugin.ReattachConfig
	if err := json.Unmarshal([]byte(text), &running); err != nil {
		return nil, plugin.Errorf(plugin.KindInvalid, "the variable %s is not what a driver's -debug prints: %w", plugin.ReattachEnv, err).
			WithHint("unset it, or copy the line that the driver printed")
	}
	return running, nil
}

func checkReattach(name string, attach plugin.ReattachConfig) error {
	failed := &StartError{Driver: name, Path: attach.Address, Reason: ReasonReattach}
	switch {
	case !slices.Contains(protocols(), attach.ProtocolVersion):
		return errProtocol(name, attach.Address, attach.ProtocolVersion)
	case attach.Network != "unix" && attach.Network != "tcp":
		failed.Message = fmt.Sprintf("driver %s cannot be reached: %s names the network %q", name, plugin.ReattachEnv, attach.Network)
		failed.Hint = `the network is "unix" or "tcp"`
		return failed
	case attach.Address == "":
		failed.Message = fmt.Sprintf("driver %s cannot be reached: %s names no address", name, plugin.ReattachEnv)
		failed.Hint = "copy the line that the driver printed"
		return failed
	}
	return nil
}

// protocols are the versions that this host speaks, in rising order.
func protocols() []int { return slices.Sorted(maps.Keys(plugin.HostServices())) }

// attachment is the connection to a driver that somebody else started. It does not
// know the process, so it cannot end it: its number may be another's by now
// (go-plugin pull request 320).
type attachment struct {
	connection *grpc.ClientConn
}

// attach connects without go-plugin, which would neither look at the version
// (its issue 310) nor leave the process alone.
func attach(config plugin.ReattachConfig) (*attachment, *plugin.Client, error) {
	connection, err := grpc.NewClient("passthrough:///driver",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, config.Network, config.Address)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, nil, err
	}
	return &attachment{connection}, plugin.NewClient(connection), nil
}

func (a *attachment) crash(*plugin.ConnectionError) *CrashError { return nil }

func (a *attachment) pid() int { return 0 }

func (a *attachment) close(bool) { _ = a.connection.Close() }

// errNotReattached is about a driver that does not answer where it should.
func errNotReattached(found Found, cause error) error {
	return &StartError{
		Driver: found.Name, Path: found.Path, Reason: ReasonReattach, Cause: cause,
		Message: fmt.Sprintf("driver %s does not answer at %s, which %s names: %s", found.Name, found.Path, plugin.ReattachEnv, printable(cause.Error())),
		Hint:    fmt.Sprintf("start it again with -debug, or unset %s", plugin.ReattachEnv),
	}
}
