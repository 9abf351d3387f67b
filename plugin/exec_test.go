package plugin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

func TestExecCarriesBytesBothWays(t *testing.T) {
	client, _ := dial(t, &fakeDriver{exec: func(_ context.Context, ref Ref, request *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
		if string(ref.Handle) != "h" || strings.Join(request.Argv, "|") != "a| b|\xff|" || request.Env["X"] != "\xfe" {
			return ExitStatus{}, Errorf(KindInvalid, "got %v %q", ref, request.Argv)
		}
		stdio.Started(3 * time.Second)
		if _, err := io.Copy(stdio.Stdout, stdio.Stdin); err != nil {
			return ExitStatus{}, err
		}
		_, err := stdio.Stderr.Write([]byte("err\xff"))
		return Exited(42), err
	}})
	input := bytes.Repeat([]byte("\x00\xff\r\nx"), 1<<20)
	var stdout, stderr bytes.Buffer
	var applied time.Duration
	status, err := client.Exec(context.Background(), Ref{ID: "sb", Handle: []byte("h")}, &ExecRequest{Argv: []string{"a", " b", "\xff", ""}, Env: map[string]string{"X": "\xfe"}, Stdin: true}, &ExecIO{
		Stdin: bytes.NewReader(input), Stdout: &stdout, Stderr: &stderr, Started: func(d time.Duration) { applied = d },
	})
	if err != nil || status != Exited(42) {
		t.Fatalf("status %+v, error %v", status, err)
	}
	if !bytes.Equal(stdout.Bytes(), input) || stderr.String() != "err\xff" || applied != 3*time.Second {
		t.Errorf("stdout equal: %v, stderr %q, applied %s", bytes.Equal(stdout.Bytes(), input), stderr.String(), applied)
	}
}

func TestStdinIsEmptyUnlessAskedFor(t *testing.T) {
	client, _ := dial(t, &fakeDriver{exec: func(_ context.Context, _ Ref, _ *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
		data, err := io.ReadAll(stdio.Stdin)
		return Exited(len(data)), err
	}})
	status, err := client.Exec(context.Background(), Ref{}, &ExecRequest{Argv: []string{"x"}}, &ExecIO{
		Stdin: strings.NewReader("must not arrive"), Stdout: io.Discard, Stderr: io.Discard,
	})
	if err != nil || status.Code != 0 {
		t.Errorf("status %+v, error %v", status, err)
	}
}

// A command that does not read its stdin must still learn of signals and resizes.
func TestControlsOvertakeUnreadStdin(t *testing.T) {
	client, _ := dial(t, &fakeDriver{exec: func(ctx context.Context, _ Ref, _ *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
		select {
		case signal := <-stdio.Signals:
			return ExitStatus{Reason: ExitSignaled, Signal: signal}, nil
		case <-ctx.Done():
			return ExitStatus{}, ctx.Err()
		}
	}})
	signals := make(chan string, 1)
	input, feed := io.Pipe()
	defer feed.Close()
	go func() {
		_, _ = feed.Write(make([]byte, stdinBuffer/2))
		signals <- "INT"
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	status, err := client.Exec(ctx, Ref{}, &ExecRequest{Argv: []string{"x"}, Stdin: true}, &ExecIO{
		Stdin: input, Stdout: io.Discard, Stderr: io.Discard, Signals: signals,
	})
	if err != nil || status.Signal != "INT" {
		t.Errorf("status %+v, error %v", status, err)
	}
}

func TestACancelledExecStillEndsWithAResult(t *testing.T) {
	started := make(chan struct{})
	cleaned := false
	client, _ := dial(t, &fakeDriver{exec: func(ctx context.Context, _ Ref, _ *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
		close(started)
		<-ctx.Done()
		_, err := stdio.Stdout.Write([]byte("last words"))
		cleaned = true
		return ExitStatus{}, errors.Join(ctx.Err(), err)
	}})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	var stdout bytes.Buffer
	status, err := client.Exec(ctx, Ref{}, &ExecRequest{Argv: []string{"x"}}, &ExecIO{Stdout: &stdout, Stderr: io.Discard})
	if err != nil || status.Reason != ExitCanceled || !cleaned || stdout.String() != "last words" {
		t.Errorf("status %+v, error %v, cleaned %v, stdout %q", status, err, cleaned, stdout.String())
	}
}

// The request to stop must not wait behind stdin that nobody reads.
func TestACancelIsNotHeldUpByUnreadStdin(t *testing.T) {
	ended := make(chan struct{})
	client, _ := dial(t, &fakeDriver{exec: func(ctx context.Context, _ Ref, _ *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
		stdio.Started(0)
		<-ctx.Done()
		close(ended)
		return ExitStatus{}, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	stuck := &stuckReader{after: 64 << 20, stuck: make(chan struct{})}
	var cancelled time.Time
	go func() { <-stuck.stuck; cancelled = time.Now(); cancel() }()
	stdio := discardIO()
	stdio.Stdin = stuck
	status, err := client.Exec(ctx, Ref{}, &ExecRequest{Argv: []string{"x"}, Stdin: true}, stdio)
	<-ctx.Done()
	// A machine that was slow at sending is not stuck, and then there is an answer.
	if !errors.Is(err, context.Canceled) && status.Reason != ExitCanceled || time.Since(cancelled) > cancelGrace {
		t.Errorf("after %s: %+v, %v", time.Since(cancelled), status, err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the driver's call goes on")
	}
}

// A caller whose writer failed leaves although a size waits behind stdin that nobody
// reads.
func TestAFailingWriterIsNotHeldUpByAControl(t *testing.T) {
	write := make(chan struct{})
	client, _ := dial(t, &fakeDriver{exec: func(ctx context.Context, _ Ref, _ *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
		<-write
		if _, err := stdio.Stdout.Write([]byte("x")); err != nil {
			return ExitStatus{}, err
		}
		<-ctx.Done()
		return ExitStatus{}, ctx.Err()
	}})
	stuck := &stuckReader{after: 64 << 20, stuck: make(chan struct{})}
	resize := make(chan TerminalSize)
	go func() {
		<-stuck.stuck
		resize <- TerminalSize{Rows: 1, Cols: 1}
		close(write)
	}()
	left := make(chan error, 1)
	go func() {
		_, err := client.Exec(context.Background(), Ref{}, &ExecRequest{Argv: []string{"x"}, Stdin: true}, &ExecIO{
			Stdin: stuck, Stdout: failingWriter{}, Stderr: io.Discard, Resize: resize,
		})
		left <- err
	}()
	select {
	case err := <-left:
		var output *OutputError
		if !errors.As(err, &output) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the caller is held up")
	}
}

// stuckReader gives bytes until nobody has asked for more for a while.
type stuckReader struct {
	after int
	stuck chan struct{}
	timer *time.Timer
}

func (r *stuckReader) Read(buffer []byte) (int, error) {
	if r.timer == nil {
		r.timer = time.AfterFunc(300*time.Millisecond, func() { close(r.stuck) })
	} else if r.timer.Stop() {
		r.timer.Reset(300 * time.Millisecond)
	}
	r.after -= len(buffer)
	if r.after < 0 {
		return 0, io.EOF
	}
	return len(buffer), nil
}

func TestAFailingWriterIsTheCallersError(t *testing.T) {
	client, _ := dial(t, &fakeDriver{exec: func(_ context.Context, _ Ref, _ *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
		_, err := stdio.Stdout.Write([]byte("x"))
		return Exited(0), err
	}})
	_, err := client.Exec(context.Background(), Ref{}, &ExecRequest{Argv: []string{"x"}}, &ExecIO{Stdout: failingWriter{}, Stderr: io.Discard})
	var output *OutputError
	if !errors.As(err, &output) || output.Stream != "stdout" || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// rawExec is a driver that speaks the protocol without the SDK.
type rawExec struct {
	driverpb.UnimplementedDriverServiceServer
	answers []*driverpb.ExecResponse
}

func (r *rawExec) Exec(stream grpc.BidiStreamingServer[driverpb.ExecRequest, driverpb.ExecResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	for _, answer := range r.answers {
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

// No result is invented: a stream must end with exactly one exit frame.
func TestAnExecWithoutOneExitFrameIsLost(t *testing.T) {
	exit := &driverpb.ExecResponse{Control: &driverpb.ExecResponse_Exited{Exited: &driverpb.ExecExited{Reason: driverpb.ExecExited_REASON_EXITED}}}
	data := &driverpb.ExecResponse{Stdout: []byte("out")}
	for name, answers := range map[string][]*driverpb.ExecResponse{
		"no reason":       {{Control: &driverpb.ExecResponse_Exited{Exited: &driverpb.ExecExited{}}}},
		"no frame at all": nil, "output only": {data}, "two exits": {exit, exit}, "output after the exit": {exit, data},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := dialService(t, func(s *grpc.Server) { driverpb.RegisterDriverServiceServer(s, &rawExec{answers: answers}) })
			status, err := client.Exec(context.Background(), Ref{}, &ExecRequest{Argv: []string{"x"}}, discardIO())
			var lost *ConnectionError
			if !errors.As(err, &lost) {
				t.Errorf("status %+v, error %v", status, err)
			}
		})
	}
}

func TestAnExecThatNamesNoReasonIsAnError(t *testing.T) {
	client, _ := dial(t, &fakeDriver{exec: func(context.Context, Ref, *ExecRequest, *ExecIO) (ExitStatus, error) { return ExitStatus{}, nil }})
	_, err := client.Exec(context.Background(), Ref{}, &ExecRequest{Argv: []string{"x"}}, discardIO())
	kindIs(t, err, KindInternal)
}
