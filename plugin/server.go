package plugin

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// maxChunk is the most data in one message; see design: data chunks <= 256 KiB.
const maxChunk = 256 << 10

// rollbackTimeout is how long the SDK gives Destroy after a failed create.
const rollbackTimeout = 30 * time.Second

// server answers the protocol with a Driver.
type server struct {
	driverpb.UnimplementedDriverServiceServer
	driver Driver
	logger *slog.Logger
}

// describe is Info with what follows from the interfaces that the driver implements.
func describe(driver Driver) Info {
	info := driver.Info()
	_, info.Capabilities.Lease.Renew = driver.(Renewer)
	_, info.Capabilities.Files.Files = driver.(FileSystem)
	_, info.Capabilities.Files.Archive = driver.(Archiver)
	_, info.Capabilities.Network.AccessLog = driver.(AccessLogger)
	_, info.Capabilities.ImageStore = driver.(ImageStore)
	return info
}

func (s *server) GetInfo(context.Context, *driverpb.GetInfoRequest) (*driverpb.GetInfoResponse, error) {
	return infoToWire(describe(s.driver)), nil
}

func (s *server) Configure(ctx context.Context, request *driverpb.ConfigureRequest) (*driverpb.ConfigureResponse, error) {
	configurer, ok := s.driver.(Configurer)
	if !ok {
		return &driverpb.ConfigureResponse{}, nil
	}
	warnings, err := configurer.Configure(ctx, Config{
		HostVersion: request.GetHostVersion(),
		Settings:    request.GetConfigJson(),
		Environment: request.GetEnvironment(),
		StateDir:    request.GetStateDir(),
		Owner:       request.GetOwner(),
		Logger:      s.logger,
	})
	return &driverpb.ConfigureResponse{Warnings: cutAll(warnings)}, err
}

func (s *server) CheckHealth(ctx context.Context, _ *driverpb.CheckHealthRequest) (*driverpb.CheckHealthResponse, error) {
	checker, ok := s.driver.(HealthChecker)
	if !ok {
		return &driverpb.CheckHealthResponse{}, nil
	}
	answer := &driverpb.CheckHealthResponse{}
	for _, check := range checker.CheckHealth(ctx) {
		answer.Checks = append(answer.Checks, &driverpb.Check{
			Name: cut(check.Name), Status: checkStatuses.toWire(check.Status), Detail: cut(check.Detail), Fix: cut(check.Fix),
		})
	}
	return answer, nil
}

func (s *server) Inspect(ctx context.Context, request *driverpb.InspectRequest) (*driverpb.InspectResponse, error) {
	ref := refFromWire(request.GetRef())
	sandbox, err := s.inspect(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &driverpb.InspectResponse{Sandbox: sandboxToWire(sandbox)}, nil
}

func (s *server) inspect(ctx context.Context, ref Ref) (*Sandbox, error) {
	if inspector, ok := s.driver.(Inspector); ok {
		return inspector.Inspect(ctx, ref)
	}
	list, err := s.driver.List(ctx, ListRequest{})
	if err != nil {
		return nil, err
	}
	for _, sandbox := range list.Sandboxes {
		if sandbox.ID == ref.ID {
			return sandbox, nil
		}
	}
	return nil, NotFoundf("sandbox %s does not exist at the backend", ref.ID)
}

func (s *server) List(request *driverpb.ListRequest, stream grpc.ServerStreamingServer[driverpb.ListResponse]) error {
	list, err := s.driver.List(stream.Context(), ListRequest{Owner: request.GetOwner()})
	if err != nil {
		return err
	}
	const batch = 200
	for rows := list.Sandboxes; len(rows) > 0; {
		now := rows[:min(batch, len(rows))]
		rows = rows[len(now):]
		answer := &driverpb.ListResponse{}
		for _, sandbox := range now {
			answer.Sandboxes = append(answer.Sandboxes, sandboxToWire(sandbox))
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	if len(list.Warnings) > 0 {
		return stream.Send(&driverpb.ListResponse{Warnings: cutAll(list.Warnings)})
	}
	return nil
}

func (s *server) Destroy(ctx context.Context, request *driverpb.DestroyRequest) (*driverpb.DestroyResponse, error) {
	gone, err := s.driver.Destroy(ctx, refFromWire(request.GetRef()))
	if err != nil {
		return nil, err
	}
	return &driverpb.DestroyResponse{AlreadyGone: gone}, nil
}

func (s *server) Renew(ctx context.Context, request *driverpb.RenewRequest) (*driverpb.RenewResponse, error) {
	renewer, ok := s.driver.(Renewer)
	if !ok {
		return nil, s.unsupported("renew")
	}
	expires, err := renewer.Renew(ctx, refFromWire(request.GetRef()), timeFromWire(request.GetExpireTime()))
	if err != nil {
		return nil, err
	}
	return &driverpb.RenewResponse{ExpireTime: timeToWire(expires)}, nil
}

func (s *server) unsupported(call string) error {
	return Errorf(KindRefused, "driver %s cannot %s", s.driver.Info().Name, call)
}

// cutAll bounds warnings; there can be one for every bad row of a listing.
func cutAll(texts []string) []string {
	const most = 100
	bounded := make([]string, 0, min(len(texts), most))
	for _, text := range texts[:min(len(texts), most)] {
		bounded = append(bounded, cut(text))
	}
	return bounded
}
