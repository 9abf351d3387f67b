package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// Create makes a sandbox and reports on the way through events. When ctx ends, the
// driver is asked to undo what it did and gets cancelGrace for it; the error then
// says whether anything was left behind.
func (c *Client) Create(ctx context.Context, spec *SandboxSpec, events CreateEvents) (*Sandbox, error) {
	const call = "create"
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	requests := newCreateRequests()
	callCtx, release := callContext(ctx, func() {
		_ = requests.cancel()
	})
	defer release()
	stream, err := c.rpc.Create(callCtx)
	if err != nil {
		return nil, fromStatus(ctx, call, err)
	}
	if err := requests.start(stream, &driverpb.CreateRequest{Message: &driverpb.CreateRequest_Start{Start: specToWire(spec)}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, fromStatus(ctx, call, err)
	}

	var sandbox *Sandbox
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fromStatus(ctx, call, err)
		}
		switch event := answer.GetEvent().(type) {
		case *driverpb.CreateResponse_Created:
			events.Created(event.Created.GetHandle())
		case *driverpb.CreateResponse_Progress:
			events.Progress(progressFromWire(event.Progress))
		case *driverpb.CreateResponse_Warning:
			events.Warn(event.Warning)
		case *driverpb.CreateResponse_Sandbox:
			if sandbox != nil {
				return nil, &ConnectionError{Call: call, Cause: errors.New("it sent a second sandbox")}
			}
			sandbox = sandboxFromWire(event.Sandbox)
			if sandbox.ID != spec.ID {
				return nil, &ConnectionError{Call: call, Cause: fmt.Errorf("it returned another sandbox, %q", cut(sandbox.ID))}
			}
		}
	}
	if sandbox == nil {
		return nil, &ConnectionError{Call: call, Cause: errors.New("it ended without a sandbox")}
	}
	return sandbox, nil
}

func newCreateRequests() *requests[driverpb.CreateRequest] {
	return &requests[driverpb.CreateRequest]{
		cancelRequest: &driverpb.CreateRequest{Message: &driverpb.CreateRequest_Cancel{Cancel: &driverpb.Cancel{}}},
	}
}
