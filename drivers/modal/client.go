package modal

import (
	"context"
	"sync"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// sdk returns the client, after checking that there are credentials to use.
func (d *Driver) sdk() (*modalsdk.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil {
		return d.client, nil
	}
	if err := d.exportEnvironment(); err != nil {
		return nil, err
	}
	if _, err := findCredentials(); err != nil {
		return nil, err
	}
	wait := time.Duration(throttleLimit)
	client, err := modalsdk.NewClientWithOptions(&modalsdk.ClientParams{
		Environment:           d.settings.Environment,
		Logger:                d.config.Logger,
		MaxThrottleWait:       &wait,
		GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{limitCall, collectAnswers},
	})
	if err != nil {
		return nil, plugin.Errorf(plugin.KindAuth, "the Modal client cannot be set up: %w", err)
	}
	d.client = client
	return client, nil
}

// app looks the app up, and makes it where create says so. It is asked for
// every time, since an app can be stopped in between.
func (d *Driver) app(ctx context.Context, create bool) (*modalsdk.App, error) {
	client, err := d.sdk()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	return client.Apps.FromName(ctx, d.settings.App, &modalsdk.AppFromNameParams{CreateIfMissing: create})
}

// limitCall puts a deadline on a call that has none. Those are the SDK's own: when
// the create of a sandbox with a GPU is cancelled, it terminates the sandbox on a
// context that never ends.
func limitCall(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, detachedLimit)
		defer cancel()
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// answers collects what Modal says and the SDK drops. It is filled through the
// context of a call, by collectAnswers.
type answers struct {
	mu   sync.Mutex
	rows map[string]*pb.SandboxInfo
	// ended says that a sandbox to be terminated had ended before.
	ended bool
}

type answersKey struct{}

func withAnswers(ctx context.Context) (context.Context, *answers) {
	collected := &answers{rows: make(map[string]*pb.SandboxInfo)}
	return context.WithValue(ctx, answersKey{}, collected), collected
}

// row is a listed sandbox as Modal sent it, or nil.
func (a *answers) row(id string) *pb.SandboxInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rows[id]
}

func (a *answers) hadEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// collectAnswers keeps the answers that the SDK reduces to an ID. Modal does not
// promise that its protocol stays as it is, so everything that uses them can do
// without.
func collectAnswers(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	collected, ok := ctx.Value(answersKey{}).(*answers)
	if err != nil || !ok {
		return err
	}
	collected.mu.Lock()
	defer collected.mu.Unlock()
	switch answer := reply.(type) {
	case *pb.SandboxListResponse:
		for _, row := range answer.GetSandboxes() {
			collected.rows[row.GetId()] = row
		}
	case *pb.SandboxTerminateResponse:
		collected.ended = answer.HasExistingResult()
	}
	return nil
}
