package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// calls keeps track of the calls under way. It turns panics and typed errors into
// statuses, and lets the process end without cutting off a clean-up.
type calls struct {
	// base ends when the process is asked to stop.
	base   context.Context
	logger *slog.Logger

	mu     sync.Mutex
	active int
	idle   chan struct{}
}

func newCalls(base context.Context, logger *slog.Logger) *calls {
	return &calls{base: base, logger: logger, idle: make(chan struct{})}
}

func (c *calls) begin(ctx context.Context) (context.Context, func()) {
	c.mu.Lock()
	c.active++
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.base, cancel)
	return ctx, func() {
		stop()
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.active--
		if c.active == 0 {
			close(c.idle)
			c.idle = make(chan struct{})
		}
	}
}

// wait returns when no call is under way, or after the limit.
func (c *calls) wait(limit time.Duration) {
	c.mu.Lock()
	idle, active := c.idle, c.active
	c.mu.Unlock()
	if active == 0 {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

func (c *calls) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	if !isDriverMethod(info.FullMethod) {
		return handler(ctx, request)
	}
	ctx, end := c.begin(ctx)
	defer end()
	defer func() { err = toStatus(err) }()
	defer c.recovered(info.FullMethod, &err)
	return handler(ctx, request)
}

func (c *calls) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if !isDriverMethod(info.FullMethod) {
		return handler(service, stream)
	}
	ctx, end := c.begin(stream.Context())
	defer end()
	defer func() { err = toStatus(err) }()
	defer c.recovered(info.FullMethod, &err)
	return handler(service, contextStream{stream, ctx})
}

func (c *calls) recovered(method string, err *error) {
	if cause := recover(); cause != nil {
		c.logger.Error("the driver panicked", "method", method, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		*err = Errorf(KindInternal, "the driver panicked in %s: %v", method, cause).
			WithHint("report this to the driver's author; --debug shows the stack")
	}
}

// contextStream is a stream whose context also ends when the process shall stop.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s contextStream) Context() context.Context { return s.ctx }
