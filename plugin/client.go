package plugin

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// cancelGrace is how long a cancelled create or exec may take to clean up and
// answer before the call is cut. A caller that was told to stop has to be gone
// within five seconds.
const cancelGrace = 4 * time.Second

// Client calls a driver over a connection. Its methods mirror Driver and the
// optional interfaces; their errors are an *Error, a *ConnectionError or, wrapped,
// the end of the context.
type Client struct {
	rpc driverpb.DriverServiceClient
}

// NewClient returns a client on a connection to a driver.
func NewClient(connection grpc.ClientConnInterface) *Client {
	return &Client{rpc: driverpb.NewDriverServiceClient(connection)}
}

// Info asks who the driver is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	answer, err := c.rpc.GetInfo(ctx, &driverpb.GetInfoRequest{})
	if err != nil {
		return Info{}, fromStatus(ctx, "describe itself", err)
	}
	return infoFromWire(answer), nil
}

// Configure gives the driver its settings; see Configurer.
func (c *Client) Configure(ctx context.Context, config Config) (warnings []string, err error) {
	answer, err := c.rpc.Configure(ctx, &driverpb.ConfigureRequest{
		HostVersion: config.HostVersion, HostApiMinor: apiMinor, ConfigJson: config.Settings,
		Environment: config.Environment, StateDir: config.StateDir, Owner: config.Owner,
	})
	return answer.GetWarnings(), fromStatus(ctx, "configure", err)
}

// CheckHealth asks what is wrong with the backend; see HealthChecker.
func (c *Client) CheckHealth(ctx context.Context) ([]Check, error) {
	answer, err := c.rpc.CheckHealth(ctx, &driverpb.CheckHealthRequest{})
	if err != nil {
		return nil, fromStatus(ctx, "check health", err)
	}
	checks := make([]Check, 0, len(answer.GetChecks()))
	for _, check := range answer.GetChecks() {
		checks = append(checks, Check{
			Name: check.GetName(), Status: checkStatuses.fromWire(check.GetStatus()), Detail: check.GetDetail(), Fix: check.GetFix(),
		})
	}
	return checks, nil
}

// Inspect looks at one sandbox.
func (c *Client) Inspect(ctx context.Context, ref Ref) (*Sandbox, error) {
	answer, err := c.rpc.Inspect(ctx, &driverpb.InspectRequest{Ref: refToWire(ref)})
	if err != nil {
		return nil, fromStatus(ctx, "inspect", err)
	}
	return sandboxFromWire(answer.GetSandbox()), nil
}

// List lists every live sandbox that is sandboxctl's.
func (c *Client) List(ctx context.Context, request ListRequest) (*SandboxList, error) {
	stream, err := c.rpc.List(ctx, &driverpb.ListRequest{Owner: request.Owner})
	if err != nil {
		return nil, fromStatus(ctx, "list", err)
	}
	list := &SandboxList{}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fromStatus(ctx, "list", err)
		}
		for _, sandbox := range answer.GetSandboxes() {
			list.Sandboxes = append(list.Sandboxes, sandboxFromWire(sandbox))
		}
		list.Warnings = append(list.Warnings, answer.GetWarnings()...)
	}
}

// Destroy removes a sandbox; alreadyGone says that there was none.
func (c *Client) Destroy(ctx context.Context, ref Ref) (alreadyGone bool, err error) {
	answer, err := c.rpc.Destroy(ctx, &driverpb.DestroyRequest{Ref: refToWire(ref)})
	return answer.GetAlreadyGone(), fromStatus(ctx, "destroy", err)
}

// Renew moves a sandbox's expiry; see Renewer.
func (c *Client) Renew(ctx context.Context, ref Ref, expires time.Time) (time.Time, error) {
	answer, err := c.rpc.Renew(ctx, &driverpb.RenewRequest{Ref: refToWire(ref), ExpireTime: timeToWire(expires)})
	return timeFromWire(answer.GetExpireTime()), fromStatus(ctx, "renew", err)
}

// deliverGrace is how long the request to stop may take to leave. It is held up when a
// command does not read the stdin that was sent before it.
const deliverGrace = 500 * time.Millisecond

// callContext lets a call outlive its caller's context by cancelGrace: when the
// context ends, onCancel asks the driver to stop, and only when that cannot be sent or
// is not answered the call is cut. The returned function releases it.
func callContext(ctx context.Context, onCancel func()) (context.Context, func()) {
	call, cut := context.WithCancel(context.WithoutCancel(ctx))
	finished := make(chan struct{})
	watcher := make(chan struct{})
	go func() {
		defer close(watcher)
		select {
		case <-ctx.Done():
		case <-finished:
			return
		}
		asked := make(chan struct{})
		go func() { defer close(asked); onCancel() }()
		// Cutting the call ends a send that is stuck.
		defer func() { cut(); <-asked }()
		timer := time.NewTimer(deliverGrace)
		defer timer.Stop()
		select {
		case <-asked:
			timer.Reset(cancelGrace)
		case <-timer.C:
			return
		case <-finished:
			return
		}
		select {
		case <-timer.C:
		case <-finished:
		}
	}()
	return call, func() {
		close(finished)
		cut()
		<-watcher
	}
}
