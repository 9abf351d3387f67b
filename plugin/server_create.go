package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

func (s *server) Create(stream grpc.BidiStreamingServer[driverpb.CreateRequest, driverpb.CreateResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetStart() == nil {
		return Errorf(KindInvalid, "the first message of create is not a specification")
	}
	spec := specFromWire(first.GetStart())

	// The driver works on a context of its own, so that a cancel that the host
	// asks for still has a stream to be answered on.
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	// Recv returns when this handler does, since that ends the stream.
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil && !errors.Is(err, io.EOF) || request.GetCancel() != nil {
				cancel()
			}
			if err != nil {
				return
			}
		}
	}()

	events := &createEvents{stream: stream}
	sandbox, err := s.driver.Create(ctx, spec, events)
	if err == nil && sandbox == nil {
		err = Errorf(KindInternal, "driver %s returned no sandbox from create", s.driver.Info().Name)
	}
	if err != nil {
		return s.rollback(ctx, spec, events, err)
	}
	return events.send(&driverpb.CreateResponse{Event: &driverpb.CreateResponse_Sandbox{Sandbox: sandboxToWire(sandbox)}})
}

// rollback removes what a failed create is known to have made. The error that is
// reported stays the first one; a failed removal is told next to it.
func (s *server) rollback(ctx context.Context, spec *SandboxSpec, events *createEvents, cause error) error {
	handle := events.lastHandle()
	if handle == nil {
		return cause
	}
	fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := s.driver.Destroy(fresh, Ref{ID: spec.ID, Handle: handle}); err != nil {
		return leftBehind(cause, err)
	}
	return cause
}

// leftBehind marks an error of create: what was made could not be removed.
func leftBehind(cause, cleanup error) error {
	marked := &Error{Kind: KindOf(cause)}
	var typed *Error
	if errors.As(cause, &typed) {
		*marked = *typed
	}
	marked.Message = fmt.Sprintf("%s; and what was made could not be removed: %s", cause, cleanup)
	marked.LeftBehind = true
	return marked
}

// createEvents sends what Create reports; drivers may call it from any goroutine.
type createEvents struct {
	stream grpc.BidiStreamingServer[driverpb.CreateRequest, driverpb.CreateResponse]

	mu     sync.Mutex
	handle []byte
}

func (e *createEvents) send(answer *driverpb.CreateResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stream.Send(answer)
}

func (e *createEvents) lastHandle() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handle
}

// The host may be gone while the driver goes on; then there is nobody to tell, and
// what Send returns does not matter.

func (e *createEvents) Created(handle []byte) {
	e.mu.Lock()
	e.handle = append([]byte{}, handle...)
	e.mu.Unlock()
	_ = e.send(&driverpb.CreateResponse{Event: &driverpb.CreateResponse_Created{Created: &driverpb.Created{Handle: handle}}})
}

func (e *createEvents) Progress(progress Progress) {
	_ = e.send(&driverpb.CreateResponse{Event: &driverpb.CreateResponse_Progress{Progress: progressToWire(progress)}})
}

func (e *createEvents) Warn(message string) {
	_ = e.send(&driverpb.CreateResponse{Event: &driverpb.CreateResponse_Warning{Warning: cut(message)}})
}
