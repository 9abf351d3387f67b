package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// call runs one call of a driver, under a limit unless that is zero, and makes its
// error one that a user can read.
func call[T any](ctx context.Context, d *Driver, name string, limit time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := withoutDeadline(ctx)
	defer cancel(nil)
	if limit > 0 {
		defer time.AfterFunc(limit, func() { cancel(errNoAnswer(d.name, limit)) }).Stop()
	}
	end := d.calls.begin()
	answer, err := do(ctx)
	end(err == nil || answered(ctx, err))
	return answer, d.explain(err)
}

// withoutDeadline returns a context that ends with ctx, and for the same cause, but
// whose deadline gRPC does not see. It would tell the driver's side, which then cuts
// the call at the same moment; whichever end is first decides whether it looks like
// a late answer or like a lost connection.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	call, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return call, func(cause error) {
		stop()
		cancel(cause)
	}
}

// errNoAnswer is the cause that plugin.Client reports when a limit ends a call.
func errNoAnswer(driver string, limit time.Duration) error {
	return plugin.Errorf(plugin.KindUnavailable, "driver %s did not answer within %s", driver, limit).
		WithHint("`sandboxctl doctor` shows whether its backend can be reached; --debug shows what it is doing")
}

// answered reports whether an error is the driver's own and not of a call that was
// given up.
func answered(ctx context.Context, err error) bool {
	var typed *plugin.Error
	return errors.As(err, &typed) && ctx.Err() == nil
}

// explain turns a lost connection into a crash when the process has ended.
func (d *Driver) explain(err error) error {
	var lost *plugin.ConnectionError
	if !errors.As(err, &lost) {
		return err
	}
	if crash := d.link.crash(lost); crash != nil {
		crash.Driver = d.name
		return crash
	}
	return err
}

// callCounter knows whether the driver may still be at work.
type callCounter struct {
	mu     sync.Mutex
	active int
	// abandoned says that a call ended here before the driver ended it there.
	abandoned bool
}

func (c *callCounter) begin() (end func(answered bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	return func(answered bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.active--
		c.abandoned = c.abandoned || !answered
	}
}

func (c *callCounter) unfinished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active > 0 || c.abandoned
}
