package plugin

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

func (s *server) Exec(stream grpc.BidiStreamingServer[driverpb.ExecRequest, driverpb.ExecResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil || len(start.GetArgv()) == 0 {
		return Errorf(KindInvalid, "the first message of exec names no command")
	}
	request := execFromWire(start)

	// A cancel that the host asks for ends the driver's context but not the stream,
	// so that the result can still be told.
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	input := newExecInput(request.Stdin)
	// It ends when this handler returns, since that ends the stream.
	go input.receive(stream, cancel)
	defer input.close()

	output := &execOutput{stream: stream}
	status, err := s.driver.Exec(ctx, refFromWire(start.GetRef()), request, &ExecIO{
		Stdin:   input.stdin,
		Stdout:  execWriter{output, func(data []byte) *driverpb.ExecResponse { return &driverpb.ExecResponse{Stdout: data} }},
		Stderr:  execWriter{output, func(data []byte) *driverpb.ExecResponse { return &driverpb.ExecResponse{Stderr: data} }},
		Resize:  input.resize,
		Signals: input.signals,
		Started: output.started,
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil && stream.Context().Err() == nil {
		status.Reason, err = ExitCanceled, nil
	}
	if err != nil {
		return err
	}
	if status.Reason == "" {
		return Errorf(KindInternal, "driver %s returned no reason for the command's end", s.driver.Info().Name)
	}
	return output.send(&driverpb.ExecResponse{Control: &driverpb.ExecResponse_Exited{Exited: exitToWire(status)}})
}

// execInput hands what the host sends to the driver. Resizes and signals are never
// held up by a command that does not read its stdin, up to stdinBuffer bytes of it.
type execInput struct {
	stdin   *byteQueue
	resize  chan TerminalSize
	signals chan string
	done    chan struct{}
	once    sync.Once
}

// stdinBuffer is how much unread stdin is kept before the host is slowed down.
const stdinBuffer = 1 << 20

func newExecInput(wanted bool) *execInput {
	input := &execInput{
		stdin:   newByteQueue(stdinBuffer),
		resize:  make(chan TerminalSize, 1),
		signals: make(chan string, 16),
		done:    make(chan struct{}),
	}
	if !wanted {
		input.stdin.closeWrite(nil)
	}
	return input
}

// close lets go of a receive that waits for a driver that has returned.
func (i *execInput) close() {
	i.once.Do(func() { close(i.done) })
	i.stdin.closeRead()
}

func (i *execInput) receive(stream grpc.BidiStreamingServer[driverpb.ExecRequest, driverpb.ExecResponse], cancel context.CancelFunc) {
	defer close(i.resize)
	defer close(i.signals)
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			i.stdin.closeWrite(nil)
			return
		}
		if err != nil {
			i.stdin.closeWrite(err)
			cancel()
			return
		}
		if data := request.GetStdin(); len(data) > 0 {
			i.stdin.write(data)
		}
		switch control := request.GetControl().(type) {
		case *driverpb.ExecRequest_StdinEof:
			i.stdin.closeWrite(nil)
		case *driverpb.ExecRequest_Resize:
			i.sendResize(sizeFromWire(control.Resize))
		case *driverpb.ExecRequest_Signal:
			select {
			case i.signals <- control.Signal:
			case <-i.done:
			}
		case *driverpb.ExecRequest_Cancel:
			cancel()
		}
	}
}

// sendResize keeps only the latest size, which is the only one that matters.
func (i *execInput) sendResize(size TerminalSize) {
	for {
		select {
		case i.resize <- size:
			return
		default:
		}
		select {
		case <-i.resize:
		default:
		}
	}
}

// execOutput serialises both channels onto the stream, which is not safe for
// concurrent sends.
type execOutput struct {
	mu     sync.Mutex
	stream grpc.BidiStreamingServer[driverpb.ExecRequest, driverpb.ExecResponse]
}

func (o *execOutput) send(answer *driverpb.ExecResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.Send(answer)
}

func (o *execOutput) started(applied time.Duration) {
	// A host that is gone is noticed by the next write.
	_ = o.send(&driverpb.ExecResponse{Control: &driverpb.ExecResponse_Started{Started: &driverpb.ExecStarted{AppliedTimeout: durationToWire(applied)}}})
}

// execWriter sends one channel. Send has encoded the bytes when it returns, so the
// caller may reuse its buffer.
type execWriter struct {
	output *execOutput
	wrap   func([]byte) *driverpb.ExecResponse
}

func (w execWriter) Write(data []byte) (int, error) {
	return writeChunks(data, func(chunk []byte) error { return w.output.send(w.wrap(chunk)) })
}

// ReadFrom lets io.Copy send chunks as large as they come; its own buffer would cut
// them to 32 KiB, which costs half of the throughput.
func (w execWriter) ReadFrom(r io.Reader) (int64, error) {
	return copyChunks(w, r)
}
