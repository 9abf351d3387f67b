package faultdriver

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandboxctl/sandboxctl/plugin"
	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// service answers the protocol, well or badly.
type service struct {
	driverpb.UnimplementedDriverServiceServer
	store store
	gates Gates
	// fault is the backend's.
	fault Fault
}

func (s *service) GetInfo(context.Context, *driverpb.GetInfoRequest) (*driverpb.GetInfoResponse, error) {
	return &driverpb.GetInfoResponse{
		Name: Name, Version: "1.0.0", Description: "a driver that misbehaves on purpose, for tests",
		Options: []*driverpb.Option{{Name: "fault", Description: "what goes wrong with this sandbox"}},
		Capabilities: &driverpb.Capabilities{
			Spec:      &driverpb.SpecSupport{Env: true, Labels: true},
			Network:   &driverpb.NetworkSupport{None: true, Open: true},
			Lease:     &driverpb.LeaseSupport{Unlimited: true, Renew: true},
			Exec:      &driverpb.ExecSupport{Stdin: true, SurvivesTimeout: true},
			Files:     &driverpb.FileSupport{Files: true, Archive: true, SymlinkWrite: driverpb.SymlinkWrite_SYMLINK_WRITE_FOLLOW},
			Isolation: "none",
		},
	}, nil
}

func (s *service) Configure(ctx context.Context, request *driverpb.ConfigureRequest) (*driverpb.ConfigureResponse, error) {
	var settings struct {
		Fault Fault `json:"fault"`
		// Store is the backend's own place, which several owners can share. Without
		// it the backend is in the state directory.
		Store string `json:"store"`
		Gates string `json:"gates"`
	}
	if len(request.GetConfigJson()) > 0 {
		if err := json.Unmarshal(request.GetConfigJson(), &settings); err != nil {
			return nil, fail(plugin.KindInvalid, "the settings are no JSON: "+err.Error())
		}
	}
	s.store, s.fault, s.gates = store{request.GetStateDir()}, settings.Fault, Gates{settings.Gates}
	if settings.Store != "" {
		s.store = store{settings.Store}
	}
	if err := s.gates.pass(ctx, StepConfigure); err != nil {
		return nil, err
	}
	answer := &driverpb.ConfigureResponse{}
	if s.fault == HostileText {
		answer.Warnings = []string{hostile("a warning of the driver")}
	}
	return answer, nil
}

// backend is the error that a broken backend answers every call with.
func (s *service) backend() error {
	switch s.fault {
	case AuthMissing:
		return fail(plugin.KindAuth, "the backend needs a token", "hint", "set FAULTY_TOKEN")
	case BackendDown:
		return fail(plugin.KindUnavailable, "the backend does not answer")
	}
	return nil
}

func (s *service) CheckHealth(context.Context, *driverpb.CheckHealthRequest) (*driverpb.CheckHealthResponse, error) {
	check := &driverpb.Check{Name: "backend", Status: driverpb.Check_STATUS_OK, Detail: "it answers"}
	if err := s.backend(); err != nil {
		check.Status, check.Detail, check.Fix = driverpb.Check_STATUS_FAILED, "it does not answer", "set FAULTY_TOKEN"
	}
	return &driverpb.CheckHealthResponse{Checks: []*driverpb.Check{check}}, nil
}

// find returns a sandbox, if the backend lets it be found.
func (s *service) find(ref *driverpb.SandboxRef) (kept, error) {
	if err := s.backend(); err != nil {
		return kept{}, err
	}
	return s.store.get(ref)
}

func (s *service) Inspect(ctx context.Context, request *driverpb.InspectRequest) (*driverpb.InspectResponse, error) {
	if err := s.gates.pass(ctx, StepInspect); err != nil {
		return nil, err
	}
	k, err := s.find(request.GetRef())
	if err != nil {
		return nil, err
	}
	return &driverpb.InspectResponse{Sandbox: k.sandbox}, nil
}

func (s *service) List(_ *driverpb.ListRequest, stream grpc.ServerStreamingServer[driverpb.ListResponse]) error {
	if err := s.backend(); err != nil {
		return err
	}
	if err := s.gates.pass(stream.Context(), StepList); err != nil {
		return err
	}
	switch s.fault {
	case ListFails:
		return fail(plugin.KindUnavailable, "the list cannot be had")
	case ListHangs:
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	all, err := s.store.all()
	if err != nil {
		return err
	}
	answer := &driverpb.ListResponse{}
	for _, k := range all {
		answer.Sandboxes = append(answer.Sandboxes, k.sandbox)
	}
	if s.fault == ListBadRow {
		answer.Warnings = append(answer.Warnings, "a row cannot be read: its expiry is \"soon\"")
	}
	if err := stream.Send(answer); err != nil || s.fault != ListLong {
		return err
	}
	return sendLongList(stream)
}

// sendLongList sends what another user of the same account has.
func sendLongList(stream grpc.ServerStreamingServer[driverpb.ListResponse]) error {
	const rows, batch = 20_000, 500
	now := timestamppb.Now()
	for sent := 0; sent < rows; sent += batch {
		answer := &driverpb.ListResponse{}
		for i := range batch {
			answer.Sandboxes = append(answer.Sandboxes, &driverpb.Sandbox{
				Id: fmt.Sprintf("sb-%012d", sent+i), Handle: fmt.Append(nil, sent+i), Name: fmt.Sprintf("other-%d", sent+i), Owner: "somebody-else",
				State: driverpb.State_STATE_RUNNING, CreateTime: now, ExpireTime: timestamppb.New(now.AsTime().Add(time.Hour)),
			})
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

func (s *service) Destroy(ctx context.Context, request *driverpb.DestroyRequest) (*driverpb.DestroyResponse, error) {
	if err := s.backend(); err != nil {
		return nil, err
	}
	k, err := s.store.get(request.GetRef())
	if err != nil {
		return &driverpb.DestroyResponse{AlreadyGone: true}, nil
	}
	switch k.fault {
	case DestroyFails, CreateLeaves:
		return nil, fail(plugin.KindUnavailable, "the backend answered 503 to the deletion")
	case DestroyHangs:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := s.gates.pass(ctx, StepDestroy); err != nil {
		return nil, err
	}
	if err := s.store.remove(k.sandbox.GetId()); err != nil {
		return nil, err
	}
	return &driverpb.DestroyResponse{}, s.gates.pass(ctx, StepDestroyed)
}

func (s *service) Renew(ctx context.Context, request *driverpb.RenewRequest) (*driverpb.RenewResponse, error) {
	k, err := s.find(request.GetRef())
	if err != nil {
		return nil, err
	}
	k.sandbox.ExpireTime = request.GetExpireTime()
	if err := s.store.put(k); err != nil {
		return nil, err
	}
	return &driverpb.RenewResponse{ExpireTime: request.GetExpireTime()}, s.gates.pass(ctx, StepRenewed)
}
