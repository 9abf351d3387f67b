//go:build linux

package modaldouble

import (
	"context"
	"path"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault is one misbehaviour of one RPC.
type Fault struct {
	// Method is the RPC's short name, such as SandboxCreateV2.
	Method string
	// Times is how many calls are affected. 0 means all until ClearFaults.
	Times int
	// Delay is waited before the call is handled.
	Delay time.Duration
	// IgnoreCancel keeps a delayed call going after its client has left, so
	// that it completes without anyone to tell.
	IgnoreCancel bool
	// Code, when not OK, is returned instead of handling the call.
	Code    codes.Code
	Message string
	// RetryAfter, when not 0, adds the service's retry instruction to Code,
	// which the vendor's clients follow without limit.
	RetryAfter time.Duration
	// LoseAnswer handles the call and then fails it with Unavailable.
	LoseAnswer bool
}

type faults struct {
	mu   sync.Mutex
	list []*Fault
}

// Inject adds a fault. Faults on one method apply in the order added.
func (s *Server) Inject(f Fault) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, &f)
}

// ClearFaults removes all faults.
func (s *Server) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = nil
}

// take returns the fault for one call of method, if there is one.
func (f *faults) take(method string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.list {
		if fault.Method != method {
			continue
		}
		taken := *fault
		if fault.Times == 1 {
			f.list = append(f.list[:i:i], f.list[i+1:]...)
		} else if fault.Times > 1 {
			fault.Times--
		}
		return &taken
	}
	return nil
}

// before applies what happens ahead of the handler, and returns the context the
// handler is to run in.
func (f *Fault) before(ctx context.Context) (context.Context, error) {
	if f.IgnoreCancel {
		ctx = context.WithoutCancel(ctx)
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
			return ctx, status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.Code == codes.OK {
		return ctx, nil
	}
	st := status.New(f.Code, f.Message)
	if f.RetryAfter > 0 {
		policy := pb.RPCRetryPolicy_builder{RetryAfterSecs: float32(f.RetryAfter.Seconds())}.Build()
		if detailed, err := st.WithDetails(policy); err == nil {
			st = detailed
		}
	}
	return ctx, st.Err()
}

func (s *Server) faultUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	fault := s.faults.take(path.Base(info.FullMethod))
	if fault == nil {
		return handler(ctx, req)
	}
	ctx, err := fault.before(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if err == nil && fault.LoseAnswer {
		return nil, status.Error(codes.Unavailable, "connection closed before the answer was sent")
	}
	return resp, err
}

func (s *Server) faultStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	fault := s.faults.take(path.Base(info.FullMethod))
	if fault == nil {
		return handler(srv, stream)
	}
	if _, err := fault.before(stream.Context()); err != nil {
		return err
	}
	err := handler(srv, stream)
	if err == nil && fault.LoseAnswer {
		return status.Error(codes.Unavailable, "connection closed before the answer was sent")
	}
	return err
}

// callCounts counts calls by short RPC name.
type callCounts struct {
	mu sync.Mutex
	by map[string]int
}

func (c *callCounts) add(fullMethod string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[string]int)
	}
	c.by[path.Base(fullMethod)]++
}

// Calls is how often the RPC with this short name has been called, retries and
// refused calls included.
func (s *Server) Calls(method string) int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return s.calls.by[method]
}

// TotalCalls is how often any RPC has been called.
func (s *Server) TotalCalls() int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	total := 0
	for _, n := range s.calls.by {
		total += n
	}
	return total
}

func (s *Server) countUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	s.calls.add(info.FullMethod)
	return handler(ctx, req)
}

func (s *Server) countStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s.calls.add(info.FullMethod)
	return handler(srv, stream)
}
