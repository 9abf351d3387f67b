//go:build linux

package modaldouble

import (
	"context"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The same calls exist under one name for each of the service's two backends.

func (c *controlPlane) SandboxWait(ctx context.Context, req *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.wait(ctx, req)
}

func (c *controlPlane) SandboxWaitV2(ctx context.Context, req *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.wait(ctx, req)
}

func (c *controlPlane) SandboxTerminate(_ context.Context, req *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.terminate(req.GetSandboxId())
}

func (c *controlPlane) SandboxTerminateV2(_ context.Context, req *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.terminate(req.GetSandboxId())
}

func (c *controlPlane) SandboxGetTaskId(_ context.Context, req *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	return c.taskID(req.GetSandboxId())
}

func (c *controlPlane) SandboxGetTaskIdV2(_ context.Context, req *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	return c.taskID(req.GetSandboxId())
}

func (c *controlPlane) SandboxList(_ context.Context, req *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(req)
}

func (c *controlPlane) SandboxListV2(_ context.Context, req *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(req)
}

func (c *controlPlane) SandboxTagsGet(_ context.Context, req *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return c.tags(req.GetSandboxId())
}

func (c *controlPlane) SandboxTagsGetV2(_ context.Context, req *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return c.tags(req.GetSandboxId())
}

func (c *controlPlane) SandboxTagsSet(_ context.Context, req *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return c.setTags(req)
}

func (c *controlPlane) SandboxTagsSetV2(_ context.Context, req *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return c.setTags(req)
}

func (c *controlPlane) SandboxGetFromName(_ context.Context, req *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(req, false)
}

func (c *controlPlane) SandboxGetFromNameV2(_ context.Context, req *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(req, true)
}
