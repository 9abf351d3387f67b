package plugin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// fakeDriver is a driver whose methods a test fills in.
type fakeDriver struct {
	info    Info
	create  func(context.Context, *SandboxSpec, CreateEvents) (*Sandbox, error)
	list    func(context.Context, ListRequest) (*SandboxList, error)
	destroy func(context.Context, Ref) (bool, error)
	exec    func(context.Context, Ref, *ExecRequest, *ExecIO) (ExitStatus, error)
}

func (d *fakeDriver) Info() Info { return d.info }

func (d *fakeDriver) Create(ctx context.Context, spec *SandboxSpec, events CreateEvents) (*Sandbox, error) {
	return d.create(ctx, spec, events)
}

func (d *fakeDriver) List(ctx context.Context, request ListRequest) (*SandboxList, error) {
	return d.list(ctx, request)
}

func (d *fakeDriver) Destroy(ctx context.Context, ref Ref) (bool, error) { return d.destroy(ctx, ref) }

func (d *fakeDriver) Exec(ctx context.Context, ref Ref, request *ExecRequest, stdio *ExecIO) (ExitStatus, error) {
	return d.exec(ctx, ref, request, stdio)
}

// dial serves a driver on a real socket and returns a client and its connection.
func dial(t *testing.T, driver Driver) (*Client, *grpc.ClientConn) {
	t.Helper()
	return dialService(t, func(registrar *grpc.Server) {
		driverpb.RegisterDriverServiceServer(registrar, &server{driver: driver, logger: slog.New(slog.DiscardHandler)})
	})
}

func dialService(t *testing.T, register func(*grpc.Server)) (*Client, *grpc.ClientConn) {
	t.Helper()
	base, stop := context.WithCancel(context.Background())
	calls := newCalls(base, slog.New(slog.DiscardHandler))
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	service := grpc.NewServer(grpc.MaxRecvMsgSize(maxReceive), grpc.ChainUnaryInterceptor(calls.unary), grpc.ChainStreamInterceptor(calls.stream))
	register(service)
	served := make(chan error, 1)
	go func() { served <- service.Serve(listener) }()
	connection, err := grpc.NewClient("unix:"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		connection.Close()
		service.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return NewClient(connection), connection
}

// discardIO takes a command's output and gives it none.
func discardIO() *ExecIO {
	return &ExecIO{Stdout: io.Discard, Stderr: io.Discard}
}

// noEvents ignores what create reports.
type noEvents struct{}

func (noEvents) Created([]byte)    {}
func (noEvents) Progress(Progress) {}
func (noEvents) Warn(string)       {}

func kindIs(t *testing.T, err error, want Kind) *Error {
	t.Helper()
	var typed *Error
	if !errors.As(err, &typed) || typed.Kind != want {
		t.Fatalf("got %T %v, want an *Error of kind %s", err, err, want)
	}
	return typed
}
