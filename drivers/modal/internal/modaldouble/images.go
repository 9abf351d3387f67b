//go:build linux

package modaldouble

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/url"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// builderVersion is the image builder version the workspace's environment has.
const builderVersion = "2025.06"

// image is a built, building or failed image.
type image struct {
	id     string
	ready  time.Time
	failed string // why it could not be built
}

func (i *image) result() *pb.GenericResult {
	if time.Now().Before(i.ready) {
		return nil
	}
	if i.failed != "" {
		return pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: i.failed}.Build()
	}
	return pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build()
}

func (c *controlPlane) AppGetOrCreate(_ context.Context, req *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	w := c.workspace
	w.mu.Lock()
	defer w.mu.Unlock()
	key := req.GetEnvironmentName() + "/" + req.GetAppName()
	id, ok := w.apps[key]
	if !ok {
		if req.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
			return nil, status.Errorf(codes.NotFound, "App %q not found", req.GetAppName())
		}
		id = "ap-" + random(base62, 22)
		w.apps[key] = id
	}
	return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
}

func (c *controlPlane) EnvironmentGetOrCreate(_ context.Context, req *pb.EnvironmentGetOrCreateRequest) (*pb.EnvironmentGetOrCreateResponse, error) {
	return pb.EnvironmentGetOrCreateResponse_builder{
		EnvironmentId: "en-double",
		Metadata: pb.EnvironmentMetadata_builder{
			Name:     req.GetDeploymentName(),
			Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: builderVersion}.Build(),
		}.Build(),
	}.Build(), nil
}

func (c *controlPlane) ImageGetOrCreate(_ context.Context, req *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	w := c.workspace
	w.mu.Lock()
	defer w.mu.Unlock()
	commands := strings.Join(req.GetImage().GetDockerfileCommands(), "\n")
	bases := make([]string, 0, 1)
	for _, base := range req.GetImage().GetBaseImages() {
		bases = append(bases, base.GetImageId())
	}
	sum := sha256.Sum256([]byte(commands + "\x00" + strings.Join(bases, ",")))
	id := "im-" + hex.EncodeToString(sum[:])[:22]
	built, ok := w.images[id]
	if !ok {
		built = &image{id: id, ready: time.Now().Add(w.behaviour.ImageBuild), failed: buildFailure(commands)}
		w.images[id] = built
	}
	return pb.ImageGetOrCreateResponse_builder{
		ImageId:  id,
		Result:   built.result(),
		Metadata: imageMetadata(),
	}.Build(), nil
}

// buildFailure says why an image cannot be built. Registries below .invalid,
// which is reserved for names that do not exist, do not exist.
func buildFailure(commands string) string {
	for line := range strings.Lines(commands) {
		ref, ok := strings.CutPrefix(strings.TrimSpace(line), "FROM ")
		if !ok {
			continue
		}
		if registry, err := url.Parse("//" + ref); err == nil && strings.HasSuffix(registry.Hostname(), ".invalid") {
			return "Image build failed: could not pull " + ref
		}
	}
	return ""
}

func imageMetadata() *pb.ImageMetadata {
	version := builderVersion
	return pb.ImageMetadata_builder{ImageBuilderVersion: &version}.Build()
}

func (c *controlPlane) image(id string) (*image, error) {
	c.workspace.mu.Lock()
	defer c.workspace.mu.Unlock()
	if found, ok := c.workspace.images[id]; ok {
		return found, nil
	}
	return nil, status.Errorf(codes.NotFound, "Image with ID %s not found", id)
}

// ForgetImages makes the workspace forget every image, as when they expire.
func (s *Server) ForgetImages() {
	s.workspace.mu.Lock()
	defer s.workspace.mu.Unlock()
	clear(s.workspace.images)
}

func (c *controlPlane) ImageFromId(_ context.Context, req *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) {
	found, err := c.image(req.GetImageId())
	if err != nil {
		return nil, err
	}
	return pb.ImageFromIdResponse_builder{ImageId: found.id, Metadata: imageMetadata()}.Build(), nil
}

func (c *controlPlane) ImageJoinStreaming(req *pb.ImageJoinStreamingRequest, stream grpc.ServerStreamingServer[pb.ImageJoinStreamingResponse]) error {
	found, err := c.image(req.GetImageId())
	if err != nil {
		return err
	}
	log := pb.ImageJoinStreamingResponse_builder{
		EntryId:  "1",
		TaskLogs: []*pb.TaskLogs{pb.TaskLogs_builder{Data: "pulling the base image\n"}.Build()},
	}.Build()
	if err := stream.Send(log); err != nil {
		return err
	}
	select {
	case <-time.After(time.Until(found.ready)):
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
	return stream.Send(pb.ImageJoinStreamingResponse_builder{
		EntryId: "2", Eof: true, Result: found.result(), Metadata: imageMetadata(),
	}.Build())
}

func (c *controlPlane) SecretGetOrCreate(_ context.Context, req *pb.SecretGetOrCreateRequest) (*pb.SecretGetOrCreateResponse, error) {
	w := c.workspace
	w.mu.Lock()
	defer w.mu.Unlock()
	id := "st-" + random(base62, 22)
	w.secrets[id] = maps.Clone(req.GetEnvDict())
	return pb.SecretGetOrCreateResponse_builder{SecretId: id}.Build(), nil
}
