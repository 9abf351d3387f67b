package faultdriver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/sandboxctl/sandboxctl/plugin"
	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

type execStream = grpc.BidiStreamingServer[driverpb.ExecRequest, driverpb.ExecResponse]

func stdout(data []byte) *driverpb.ExecResponse { return &driverpb.ExecResponse{Stdout: data} }

func exited(code int32, reason driverpb.ExecExited_Reason) *driverpb.ExecResponse {
	return &driverpb.ExecResponse{Control: &driverpb.ExecResponse_Exited{Exited: &driverpb.ExecExited{ExitCode: code, Reason: reason}}}
}

func (s *service) Exec(stream execStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	k, err := s.find(start.GetRef())
	if err != nil {
		return err
	}
	if err := s.gates.pass(stream.Context(), StepExec); err != nil {
		return err
	}
	if answers, broken := brokenExec(k.fault); broken {
		for _, answer := range answers {
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
		return endBroken(k)
	}
	return s.runCommand(stream, k, start)
}

// brokenExec is what a command sends whose exec has a fault.
func brokenExec(fault Fault) (answers []*driverpb.ExecResponse, broken bool) {
	const ok = driverpb.ExecExited_REASON_EXITED
	some := stdout([]byte("some output\n"))
	switch fault {
	case ExecPanics, ExecHangs, ExecUnsure, ExecGone, ExecLongError:
		return nil, true
	case ExecDies, ExecNoExit:
		return []*driverpb.ExecResponse{some}, true
	case ExecTwoExits:
		return []*driverpb.ExecResponse{some, exited(0, ok), exited(7, ok)}, true
	case ExecNoReason:
		return []*driverpb.ExecResponse{some, exited(0, driverpb.ExecExited_REASON_UNSPECIFIED)}, true
	case ExecLargeFrame:
		return []*driverpb.ExecResponse{stdout(bytes.Repeat([]byte("x"), 5_000_000)), exited(0, ok)}, true
	}
	return nil, false
}

func endBroken(k kept) error {
	switch k.fault {
	case ExecPanics:
		panic("faulty: a nil map, say")
	case ExecDies:
		// What was sent has to get out first; the host's side decides when it is read.
		time.Sleep(50 * time.Millisecond)
		die()
	case ExecHangs:
		select {}
	case ExecUnsure:
		return fail(plugin.KindIndeterminate, "the connection broke after the command was sent; it may or may not have run")
	case ExecGone:
		return notFound(k.sandbox.GetId())
	case ExecLongError:
		return fail(plugin.KindInternal, strings.Repeat("long ", 4<<20))
	}
	return nil
}

// runCommand runs a command on this machine.
func (s *service) runCommand(stream execStream, k kept, start *driverpb.ExecStart) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	timeout := start.GetTimeout().AsDuration()
	timedOut := false
	if timeout > 0 {
		timer := time.AfterFunc(timeout, cancel)
		defer timer.Stop()
	}
	command := exec.CommandContext(ctx, string(start.GetArgv()[0]))
	for _, argument := range start.GetArgv()[1:] {
		command.Args = append(command.Args, string(argument))
	}
	command.Dir = filepath.Join(s.store.root(k.sandbox.GetId()), start.GetWorkdir())
	command.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	for name, value := range start.GetEnv() {
		command.Env = append(command.Env, name+"="+string(value))
	}
	output := &sender{stream: stream}
	command.Stdout = writer(func(data []byte) error { return output.send(stdout(data)) })
	command.Stderr = writer(func(data []byte) error { return output.send(&driverpb.ExecResponse{Stderr: data}) })
	command.WaitDelay = 200 * time.Millisecond
	killTree(command)
	if start.GetStdin() {
		stdin, toCommand := io.Pipe()
		defer stdin.Close()
		command.Stdin = stdin
		go receiveInput(stream, toCommand, cancel)
	} else {
		go receiveInput(stream, nil, cancel)
	}
	started := time.Now()
	err := command.Run()
	timedOut = timeout > 0 && time.Since(started) >= timeout
	return output.send(outcome(ctx, command, err, timedOut))
}

func outcome(ctx context.Context, command *exec.Cmd, err error, timedOut bool) *driverpb.ExecResponse {
	var exit *exec.ExitError
	switch {
	case timedOut:
		return exited(124, driverpb.ExecExited_REASON_TIMED_OUT)
	case ctx.Err() != nil:
		return exited(137, driverpb.ExecExited_REASON_CANCELED)
	case command.ProcessState == nil:
		return exited(127, driverpb.ExecExited_REASON_EXITED)
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		return exited(137, driverpb.ExecExited_REASON_SIGNALED)
	}
	return exited(int32(command.ProcessState.ExitCode()), driverpb.ExecExited_REASON_EXITED)
}

// receiveInput hands stdin to the command, which may be nil, and hears a cancel. It
// ends with the stream.
func receiveInput(stream execStream, stdin *io.PipeWriter, cancel context.CancelFunc) {
	for {
		request, err := stream.Recv()
		if err != nil {
			if stdin != nil {
				stdin.CloseWithError(io.EOF)
			}
			if !errors.Is(err, io.EOF) {
				cancel()
			}
			return
		}
		if stdin != nil && len(request.GetStdin()) > 0 {
			_, _ = stdin.Write(request.GetStdin()) // a command that has ended reads no more
		}
		if stdin != nil && request.GetStdinEof() {
			stdin.CloseWithError(io.EOF)
		}
		if request.GetCancel() != nil {
			cancel()
		}
	}
}

// sender serialises both channels onto the stream.
type sender struct {
	mu     sync.Mutex
	stream execStream
}

func (s *sender) send(answer *driverpb.ExecResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Send(answer)
}

// writer sends what is written.
type writer func([]byte) error

func (w writer) Write(data []byte) (int, error) { return len(data), w(data) }
