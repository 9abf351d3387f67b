//go:build linux

package modaldouble

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/creack/pty"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// entrypointExec is the exec ID under which a sandbox's entrypoint is kept.
const entrypointExec = "entrypoint"

// router answers the calls about the processes of one task.
type router struct {
	pb.UnimplementedTaskCommandRouterServer
	workspace *workspace
}

// task finds the sandbox of a call and checks its token.
func (r *router) task(ctx context.Context, id string) (*sandbox, error) {
	token, ok := strings.CutPrefix(header(ctx, "authorization"), "Bearer ")
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "no token")
	}
	sb, err := r.workspace.task(id)
	if err != nil {
		return nil, err
	}
	if !sameSecret(token, sb.token) {
		return nil, status.Error(codes.Unauthenticated, "the token is for another task")
	}
	return sb, nil
}

func (r *router) process(ctx context.Context, taskID, execID string) (*process, error) {
	sb, err := r.task(ctx, taskID)
	if err != nil {
		return nil, err
	}
	return sb.process(execID)
}

// begin starts the sandbox's entrypoint, if it has one, and its clocks.
func (sb *sandbox) begin() error {
	if err := sb.makeWorkdir(); err != nil {
		return status.Errorf(codes.Internal, "make the working directory: %v", err)
	}
	if argv := sb.definition.GetEntrypointArgs(); len(argv) > 0 {
		c := command{argv: argv, env: sb.env, workdir: sb.workdir()}
		p, err := startProcess(sb.guest, c)
		if err != nil {
			return status.Errorf(codes.Internal, "start the entrypoint: %v", err)
		}
		sb.mu.Lock()
		sb.execs[entrypointExec] = p
		sb.mu.Unlock()
		go func() {
			<-p.done
			outcome := pb.GenericResult_GENERIC_STATUS_SUCCESS
			if p.code != 0 || p.signal != 0 {
				outcome = pb.GenericResult_GENERIC_STATUS_FAILURE
			}
			sb.finish(outcome, cmp.Or(p.code, signalBase(p.signal)))
		}()
	}
	sb.startClocks()
	return nil
}

func signalBase(signal int) int {
	if signal == 0 {
		return 0
	}
	return 128 + signal
}

// workdir is where commands run unless they say otherwise: what the create asked
// for, or what the image says, which is often nothing.
func (sb *sandbox) workdir() string {
	return cmp.Or(sb.definition.GetWorkdir(), sb.imageWorkdir, "/")
}

func (r *router) TaskExecStart(ctx context.Context, req *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	sb, err := r.task(ctx, req.GetTaskId())
	if err != nil {
		return nil, err
	}
	if len(req.GetCommandArgs()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "command_args is empty")
	}
	if req.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_STDOUT {
		return nil, status.Error(codes.InvalidArgument, "merging stderr into stdout is not supported")
	}
	env, err := r.execEnv(sb, req)
	if err != nil {
		return nil, err
	}
	settings := r.workspace.settings()
	c := command{
		argv:          req.GetCommandArgs(),
		env:           env,
		workdir:       cmp.Or(req.GetWorkdir(), sb.workdir()),
		discardStdout: req.GetStdoutConfig() == pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_DEVNULL,
		discardStderr: req.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_DEVNULL,
		holdStreams:   settings.HoldStreams,
	}
	if req.GetTimeoutSecs() > 0 {
		c.timeout = time.Duration(req.GetTimeoutSecs())*time.Second + settings.ExecTimeoutLag
	}
	if terminal := req.GetPtyInfo(); terminal.GetEnabled() {
		c.pty = &pty.Winsize{Rows: uint16(terminal.GetWinszRows()), Cols: uint16(terminal.GetWinszCols())}
		c.env = append(c.env, "TERM="+terminal.GetEnvTerm())
	}
	if err := sb.exec(req.GetExecId(), c); err != nil {
		return nil, err
	}
	return &pb.TaskExecStartResponse{}, nil
}

// execEnv is the sandbox's environment with the exec's own values over it.
func (r *router) execEnv(sb *sandbox, req *pb.TaskExecStartRequest) ([]string, error) {
	own := maps.Clone(req.GetEnv())
	if own == nil {
		own = make(map[string]string)
	}
	if err := r.workspace.mergeSources(own, req.GetSecretIds(), req.GetSecretSources()); err != nil {
		return nil, err
	}
	env := slices.DeleteFunc(slices.Clone(sb.env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, replaced := own[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(own)) {
		env = append(env, name+"="+own[name])
	}
	return env, nil
}

func (r *router) TaskExecStdioRead(req *pb.TaskExecStdioReadRequest, stream grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	p, err := r.process(stream.Context(), req.GetTaskId(), req.GetExecId())
	if err != nil {
		return err
	}
	from := p.stdout
	if req.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		from = p.stderr
	}
	link := newLink(r.workspace.settings().Bandwidth)
	offset := req.GetOffset()
	for {
		chunk, err := from.next(stream.Context(), offset)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if len(chunk) == 0 {
			return nil
		}
		link.carry(len(chunk))
		if err := stream.Send(pb.TaskExecStdioReadResponse_builder{Data: chunk}.Build()); err != nil {
			return err
		}
		offset += uint64(len(chunk))
	}
}

func (r *router) TaskExecStdinWrite(ctx context.Context, req *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	p, err := r.process(ctx, req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	if err := p.stdin.write(ctx, req.GetOffset(), req.GetData(), req.GetEof()); err != nil {
		return nil, err
	}
	return &pb.TaskExecStdinWriteResponse{}, nil
}

func (r *router) TaskExecStdinStatus(ctx context.Context, req *pb.TaskExecStdinStatusRequest) (*pb.TaskExecStdinStatusResponse, error) {
	p, err := r.process(ctx, req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	written, closed := p.stdin.state()
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: written, Closed: closed}.Build(), nil
}

func (r *router) TaskExecStdinWriteStream(stream grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if !first.HasStart() {
		return status.Error(codes.InvalidArgument, "the first message must be start")
	}
	start := first.GetStart()
	ctx := stream.Context()
	p, err := r.process(ctx, start.GetTaskId(), start.GetExecId())
	if err != nil {
		return err
	}
	offset := start.GetOffset()
	for {
		message, err := stream.Recv()
		if err == io.EOF {
			return status.Error(codes.InvalidArgument, "the stream ended without an end message")
		}
		if err != nil {
			return err
		}
		if message.HasEnd() {
			if err := p.stdin.write(ctx, offset, nil, true); err != nil {
				return err
			}
			return stream.SendAndClose(&pb.TaskExecStdinWriteStreamResponse{})
		}
		if err := p.stdin.write(ctx, offset, message.GetData(), false); err != nil {
			return err
		}
		offset += uint64(len(message.GetData()))
	}
}

func (r *router) TaskExecWait(ctx context.Context, req *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	p, err := r.process(ctx, req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	code, signal := p.exitStatus()
	return pb.TaskExecWaitResponse_builder{Code: code, Signal: signal}.Build(), nil
}

func (r *router) TaskExecPoll(ctx context.Context, req *pb.TaskExecPollRequest) (*pb.TaskExecPollResponse, error) {
	p, err := r.process(ctx, req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		code, signal := p.exitStatus()
		return pb.TaskExecPollResponse_builder{Code: code, Signal: signal}.Build(), nil
	default:
		return &pb.TaskExecPollResponse{}, nil
	}
}

// exitStatus is exactly one of a code and a signal.
func (p *process) exitStatus() (code, signal *int32) {
	if p.signal != 0 {
		n := int32(p.signal)
		return nil, &n
	}
	n := int32(p.code)
	return &n, nil
}

func (r *router) SandboxStdioReadV2(req *pb.SandboxStdioReadV2Request, stream grpc.ServerStreamingServer[pb.SandboxStdioReadV2Response]) error {
	sb, err := r.task(stream.Context(), req.GetTaskId())
	if err != nil {
		return err
	}
	p, err := sb.process(entrypointExec)
	if err != nil {
		return nil // a sandbox without an entrypoint has no output
	}
	from := p.stdout
	if req.GetFileDescriptor() == pb.SandboxStdioFileDescriptor_SANDBOX_STDIO_FILE_DESCRIPTOR_STDERR {
		from = p.stderr
	}
	offset := req.GetOffset()
	for {
		chunk, err := from.next(stream.Context(), offset)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if len(chunk) == 0 {
			return nil
		}
		message := pb.SandboxStdioReadV2Response_builder{Data: chunk, StartingOffset: offset}.Build()
		if err := stream.Send(message); err != nil {
			return err
		}
		offset += uint64(len(chunk))
	}
}

// link is a network of limited bandwidth.
type link struct {
	bytesPerSecond int
	free           time.Time // when all that was sent has passed
}

func newLink(bytesPerSecond int) *link {
	return &link{bytesPerSecond: bytesPerSecond, free: time.Now()}
}

// carry waits until the link takes n more bytes.
func (l *link) carry(n int) {
	if l.bytesPerSecond == 0 {
		return
	}
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	time.Sleep(time.Until(l.free))
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.bytesPerSecond) * float64(time.Second)))
}
