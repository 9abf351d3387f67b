package plugin

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// cancelling is a connection on which the caller gives up while a stream opens.
type cancelling struct {
	grpc.ClientConnInterface
	cancel func()
}

func (c *cancelling) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	c.cancel()
	// So that the request to stop comes before the first one. Without the wait the
	// test passes, too, but shows less.
	time.Sleep(50 * time.Millisecond)
	return stream, err
}

// A cancel is told to the driver also when it comes before the call has begun.
func TestAnEarlyCancelIsToldToTheDriver(t *testing.T) {
	untilCancelled := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	_, connection := dial(t, &fakeDriver{
		create: func(ctx context.Context, _ *SandboxSpec, _ CreateEvents) (*Sandbox, error) {
			return nil, untilCancelled(ctx)
		},
		exec: func(ctx context.Context, _ Ref, _ *ExecRequest, _ *ExecIO) (ExitStatus, error) {
			return ExitStatus{}, untilCancelled(ctx)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	client := NewClient(&cancelling{connection, cancel})
	_, err := client.Create(ctx, &SandboxSpec{ID: "sb-"}, noEvents{})
	kindIs(t, err, KindCanceled)

	ctx, cancel = context.WithCancel(context.Background())
	client = NewClient(&cancelling{connection, cancel})
	status, err := client.Exec(ctx, Ref{}, &ExecRequest{Argv: []string{"x"}}, discardIO())
	if err != nil || status.Reason != ExitCanceled {
		t.Errorf("status %+v, error %v", status, err)
	}
}

// sentRequests is a stream that keeps what is sent.
type sentRequests struct {
	driverpb.DriverService_CreateClient
	sent []*driverpb.CreateRequest
}

func (s *sentRequests) Send(request *driverpb.CreateRequest) error {
	s.sent = append(s.sent, request)
	return nil
}

// A driver takes a cancel in place of a specification for a broken host.
func TestACancelIsNeverTheFirstRequest(t *testing.T) {
	requests := newCreateRequests()
	stream := &sentRequests{}
	start := &driverpb.CreateRequest{Message: &driverpb.CreateRequest_Start{Start: &driverpb.SandboxSpec{}}}
	if err := errors.Join(requests.cancel(), requests.start(stream, start)); err != nil {
		t.Fatal(err)
	}
	if len(stream.sent) != 2 || stream.sent[0] != start || stream.sent[1].GetCancel() == nil {
		t.Errorf("sent %v", stream.sent)
	}
}

// hostileLog reports what a guest has asked its network for.
type hostileLog struct{ fakeDriver }

func (hostileLog) AccessLog(context.Context, Ref) ([]Access, error) {
	return []Access{{Verdict: AccessRefused, Host: "evil\xff.example.com", Protocol: "tcp"}}, nil
}

func TestAccessesWithOddBytesArrive(t *testing.T) {
	client, _ := dial(t, &hostileLog{})
	log, err := client.AccessLog(context.Background(), Ref{})
	if err != nil || len(log) != 1 || log[0].Host != "evil\uFFFD.example.com" {
		t.Errorf("got %+v, %v", log, err)
	}
}
