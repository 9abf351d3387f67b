package faultdriver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandboxctl/sandboxctl/plugin"
	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// hostile is a text that clears the screen, moves the cursor and rings the bell of a
// terminal that it is printed on, and pretends to be two lines.
func hostile(text string) string {
	return "\x1b[2J\x1b[1;1H\x1b]0;owned\a" + text + "\nERROR: forged\r\u202e"
}

func (s *service) Create(stream grpc.BidiStreamingServer[driverpb.CreateRequest, driverpb.CreateResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := s.backend(); err != nil {
		return err
	}
	spec := first.GetStart()
	k := kept{sandbox: sandboxOf(spec), fault: Fault(spec.GetOptions()["fault"])}
	if k.fault == "" {
		k.fault = s.fault
	}
	disguise(k)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go hearCancel(stream, cancel)
	if err := s.gates.pass(ctx, StepCreate); err != nil {
		return fail(plugin.KindCanceled, "the create was canceled")
	}
	if err := s.store.put(k); err != nil {
		return err
	}
	if err := s.gates.pass(ctx, StepMade); err != nil {
		return s.undo(k)
	}
	send := func(answer *driverpb.CreateResponse) error { return stream.Send(answer) }
	created := &driverpb.CreateResponse{Event: &driverpb.CreateResponse_Created{Created: &driverpb.Created{Handle: k.sandbox.GetHandle()}}}
	if err := send(created); err != nil {
		return err
	}
	if k.fault == HostileText {
		warning := &driverpb.CreateResponse{Event: &driverpb.CreateResponse_Warning{Warning: hostile("the image is old")}}
		if err := send(warning); err != nil {
			return err
		}
	}
	if done, err := s.failCreate(k); done {
		return err
	}
	if err := s.gates.pass(ctx, StepTold); err != nil {
		return s.undo(k)
	}
	if k.fault == CreateOther {
		k.sandbox.Id = "sb-aaaaaaaaaaaa"
	}
	return send(&driverpb.CreateResponse{Event: &driverpb.CreateResponse_Sandbox{Sandbox: k.sandbox}})
}

// hearCancel ends with the stream.
func hearCancel(stream grpc.BidiStreamingServer[driverpb.CreateRequest, driverpb.CreateResponse], cancel context.CancelFunc) {
	for {
		request, err := stream.Recv()
		if err != nil {
			return
		}
		if request.GetCancel() != nil {
			cancel()
		}
	}
}

// undo removes what a canceled create has made.
func (s *service) undo(k kept) error {
	if err := s.store.remove(k.sandbox.GetId()); err != nil {
		return err
	}
	return fail(plugin.KindCanceled, "the create was canceled")
}

// failCreate is how a create ends that has a fault.
func (s *service) failCreate(k kept) (done bool, err error) {
	id := k.sandbox.GetId()
	switch k.fault {
	case CreateFails:
		if err := s.store.remove(id); err != nil {
			return true, err
		}
		return true, fail(plugin.KindUnavailable, "the sandbox did not become ready")
	case CreateLeaves:
		return true, fail(plugin.KindUnavailable, "the sandbox did not become ready; and what was made could not be removed: 503", "left_behind", "true")
	case CreateLies:
		return true, fail(plugin.KindUnavailable, "the sandbox did not become ready")
	case CreateHangs:
		select {}
	case CreateDies:
		die()
	case CreateEndsEarly:
		return true, nil
	}
	return false, nil
}

func sandboxOf(spec *driverpb.SandboxSpec) *driverpb.Sandbox {
	return &driverpb.Sandbox{
		Id: spec.GetId(), Handle: []byte(spec.GetId()), Name: spec.GetName(), Owner: spec.GetOwner(), State: driverpb.State_STATE_RUNNING,
		Image: spec.GetImage(), Labels: spec.GetLabels(), CreateTime: spec.GetCreateTime(), ExpireTime: spec.GetExpireTime(),
		Network: spec.GetNetwork(), Workdir: "/",
	}
}

// disguise changes what a sandbox says of itself.
func disguise(k kept) {
	switch k.fault {
	case HostileText:
		k.sandbox.StateReason = hostile("running")
		k.sandbox.Image = hostile("image")
		k.sandbox.Workdir = hostile("/")
		k.sandbox.DetailsJson = []byte(`{"note":"\u001b[2Jowned"}`)
		k.sandbox.Labels = map[string]string{"note": hostile("label")}
	case ClockSkew:
		k.sandbox.CreateTime = dayAhead(k.sandbox.GetCreateTime())
		k.sandbox.ExpireTime = dayAhead(k.sandbox.GetExpireTime())
	}
}

func dayAhead(t *timestamppb.Timestamp) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(t.AsTime().Add(24 * time.Hour))
}
