package cli

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// hostGrace is how much longer than the deadline the host waits for the driver to say
// that the command was killed.
const hostGrace = 10 * time.Second

// lookTimeout bounds the question whether a sandbox outlived a driver's silence.
const lookTimeout = 5 * time.Second

// errNoAnswer is the cause of a command's context when the driver let the deadline and
// the grace pass.
var errNoAnswer = errors.New("the driver did not answer within the grace period after the deadline")

// errReaderGone is that nobody reads our stdout any more; it is told to nobody.
var errReaderGone = errors.New("the reader of stdout is gone")

// execute runs a command and fills in its result.
func (a *App) execute(ctx context.Context, found *target, request *plugin.ExecRequest, result *execResult) error {
	a.printer.Status("")
	commandCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	boundCtx, release := commandContext(commandCtx, request.Timeout)
	defer release()
	if request.Timeout > 0 {
		result.applied(request.Timeout)
	}
	streams := a.execStreams(result.options, cancel)
	stdio := &plugin.ExecIO{Stdin: a.Stdin, Stdout: streams.stdout, Stderr: streams.stderr, Started: func(applied time.Duration) {
		if applied > 0 {
			result.applied(applied)
		}
	}}
	restore, err := a.attachTerminal(request, stdio)
	if err != nil {
		return err
	}
	start := time.Now()
	status, err := func() (plugin.ExitStatus, error) {
		defer restore()
		return found.driver.Exec(boundCtx, found.ref(), request, stdio)
	}()
	result.DurationMS = time.Since(start).Milliseconds()
	streams.report(result)
	return a.concludeExec(boundCtx, found, result, status, err)
}

// concludeExec turns what the driver said, or did not say, into the result.
func (a *App) concludeExec(ctx context.Context, found *target, result *execResult, status plugin.ExitStatus, err error) error {
	cause := context.Cause(ctx)
	var signalled *interruptError
	switch {
	case errors.Is(cause, errReaderGone):
		result.Reason = string(plugin.ExitCanceled)
		return cause
	case errors.As(cause, &signalled) && (err != nil || status.Reason == plugin.ExitCanceled):
		result.ended(status)
		result.Reason = string(plugin.ExitCanceled)
		return signalled
	case errors.Is(cause, errNoAnswer) && (err != nil || status.Reason == plugin.ExitCanceled):
		result.Reason = string(plugin.ExitTimedOut)
		result.SandboxTerminated = a.isGone(ctx, found)
		return nil
	case err != nil:
		result.failed(err)
		return gone(found.record, err)
	case status.Reason == plugin.ExitCanceled:
		result.Reason = reasonLost
		return fromDriver(found.record.Driver, plugin.Errorf(plugin.KindIndeterminate, "the command in %s was stopped, though nobody asked for it", found.record.Name))
	}
	result.ended(status)
	return nil
}

// isGone looks whether a sandbox still exists; when that cannot be told it is taken to.
func (a *App) isGone(ctx context.Context, found *target) bool {
	fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	_, err := found.driver.Inspect(fresh, found.ref())
	return plugin.KindOf(err) == plugin.KindNotFound
}

// execStreams is where a command's output goes: to our own stdout and stderr as it
// comes, or, for JSON, into the tail that is kept.
type execStreams struct {
	stdout, stderr *execStream
	// outTail and errTail are nil when the output went out live.
	outTail, errTail *output.Tail
}

func (a *App) execStreams(options execOptions, cancel context.CancelCauseFunc) *execStreams {
	if a.printer.Format() != output.JSON {
		return &execStreams{
			stdout: &execStream{to: a.Stdout, cancel: cancel},
			stderr: &execStream{to: a.Stderr, cancel: cancel},
		}
	}
	// The flag was checked before anything was started.
	limit, _ := options.outputLimit()
	out, err := output.NewTail(limit), output.NewTail(limit)
	return &execStreams{
		stdout: &execStream{to: out, cancel: cancel}, outTail: out,
		stderr: &execStream{to: err, cancel: cancel}, errTail: err,
	}
}

func (s *execStreams) report(result *execResult) {
	result.StdoutBytes, result.StderrBytes = s.stdout.written(), s.stderr.written()
	if s.outTail != nil {
		result.captured(s.outTail, s.errTail)
	}
}

// execStream counts what it passes on. When its reader is gone it stops the command
// and swallows the rest, so that the driver can still say how the command ended.
type execStream struct {
	to     io.Writer
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	bytes  int64
	broken bool
}

func (s *execStream) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(len(data))
	if s.broken {
		return len(data), nil
	}
	if _, err := s.to.Write(data); err != nil {
		s.broken = true
		if errors.Is(err, syscall.EPIPE) {
			err = errReaderGone
		}
		s.cancel(err)
	}
	return len(data), nil
}

func (s *execStream) written() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}
