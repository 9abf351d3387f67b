package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// Exec runs a command. When ctx ends, the driver is asked to kill the command and
// gets cancelGrace to say how it ended, so a cancelled exec normally returns
// ExitCanceled and no error. A *ConnectionError means that the result is lost: the
// command may or may not have run.
//
// Exec returns when the command has ended even if stdio.Stdin has not: a Read of
// stdin may then still be under way, and what it returns is dropped.
func (c *Client) Exec(ctx context.Context, ref Ref, request *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
	if err := context.Cause(ctx); err != nil {
		return ExitStatus{}, err
	}
	var controls sync.WaitGroup
	defer controls.Wait() // after the release, which ends a send that is stuck
	requests := newExecRequests()
	callCtx, release := callContext(ctx, func() {
		_ = requests.cancel()
	})
	defer release()
	stream, err := c.rpc.Exec(callCtx)
	if err != nil {
		return ExitStatus{}, fromStatus(ctx, "exec", err)
	}
	start := &driverpb.ExecRequest{Control: &driverpb.ExecRequest_Start{Start: execToWire(ref, request)}}
	// An io.EOF from Send means that the reason is to be had from Recv.
	if err := requests.start(stream, start); err != nil && !errors.Is(err, io.EOF) {
		return ExitStatus{}, fromStatus(ctx, "exec", err)
	}
	if request.Stdin && stdio.Stdin != nil {
		go pumpStdin(requests, stdio.Stdin)
	}
	finished := make(chan struct{})
	controls.Go(func() { pumpControls(requests, stdio, finished) })
	defer close(finished)
	return receiveExec(ctx, stream, stdio)
}

func receiveExec(ctx context.Context, stream driverpb.DriverService_ExecClient, stdio *ExecIO) (ExitStatus, error) {
	var exited *driverpb.ExecExited
	for {
		answer, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && exited != nil:
			return exitFromWire(exited), nil
		case errors.Is(err, io.EOF):
			return ExitStatus{}, &ConnectionError{Call: "exec", Cause: errors.New("it ended without an exit status")}
		case err != nil:
			return ExitStatus{}, fromStatus(ctx, "exec", err)
		case exited != nil:
			return ExitStatus{}, &ConnectionError{Call: "exec", Cause: errors.New("it went on after the exit status")}
		}
		if err := writeOutput(answer, stdio); err != nil {
			return ExitStatus{}, err
		}
		switch control := answer.GetControl().(type) {
		case *driverpb.ExecResponse_Started:
			if stdio.Started != nil {
				stdio.Started(control.Started.GetAppliedTimeout().AsDuration())
			}
		case *driverpb.ExecResponse_Exited:
			exited = control.Exited
			if exitReasons.fromWire(exited.GetReason()) == "" {
				// A newer driver may know reasons that this host does not; zero means none.
				return ExitStatus{}, &ConnectionError{Call: "exec", Cause: errors.New("it gave no known reason for the command's end")}
			}
		}
	}
}

// OutputError means that the caller's own writer failed, not the command.
type OutputError struct {
	// Stream is "stdout" or "stderr".
	Stream string
	Cause  error
}

func (e *OutputError) Error() string { return fmt.Sprintf("writing %s: %s", e.Stream, e.Cause) }

func (e *OutputError) Unwrap() error { return e.Cause }

func writeOutput(answer *driverpb.ExecResponse, stdio *ExecIO) error {
	if data := answer.GetStdout(); len(data) > 0 {
		if _, err := stdio.Stdout.Write(data); err != nil {
			return &OutputError{Stream: "stdout", Cause: err}
		}
	}
	if data := answer.GetStderr(); len(data) > 0 {
		if _, err := stdio.Stderr.Write(data); err != nil {
			return &OutputError{Stream: "stderr", Cause: err}
		}
	}
	return nil
}

// execRequests go to one command. Their failures need no telling: the receiving side
// learns of a broken stream.
type execRequests = requests[driverpb.ExecRequest]

func newExecRequests() *execRequests {
	return &execRequests{
		cancelRequest: &driverpb.ExecRequest{Control: &driverpb.ExecRequest_Cancel{Cancel: &driverpb.Cancel{}}},
	}
}

func pumpStdin(r *execRequests, stdin io.Reader) {
	buffer := make([]byte, maxChunk)
	for {
		n, err := stdin.Read(buffer)
		if n > 0 {
			if r.send(&driverpb.ExecRequest{Stdin: buffer[:n]}) != nil {
				return
			}
		}
		if err != nil {
			_ = r.send(&driverpb.ExecRequest{Control: &driverpb.ExecRequest_StdinEof{StdinEof: true}})
			return
		}
	}
}

func pumpControls(r *execRequests, stdio *ExecIO, finished <-chan struct{}) {
	resize, signals := stdio.Resize, stdio.Signals
	for {
		select {
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			_ = r.send(&driverpb.ExecRequest{Control: &driverpb.ExecRequest_Resize{Resize: sizeToWire(size)}})
		case signal, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			_ = r.send(&driverpb.ExecRequest{Control: &driverpb.ExecRequest_Signal{Signal: signal}})
		case <-finished:
			return
		}
	}
}
