//go:build linux

package modaldouble

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	maxLifetime = 24 * time.Hour
	maxDomains  = 100
)

// controlPlane answers the workspace-wide calls.
type controlPlane struct {
	pb.UnimplementedModalClientServer
	server    *Server
	workspace *workspace
}

func (c *controlPlane) ClientHello(context.Context, *emptypb.Empty) (*pb.ClientHelloResponse, error) {
	return pb.ClientHelloResponse_builder{ImageBuilderVersion: builderVersion}.Build(), nil
}

func (c *controlPlane) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: unsignedToken("workspace")}.Build(), nil
}

func (c *controlPlane) SandboxCreateV2(ctx context.Context, req *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	env := maps.Clone(req.GetEphemeralSecrets().GetContents())
	if env == nil {
		env = make(map[string]string)
	}
	if err := c.mergeSources(env, req.GetDefinition().GetSecretIds(), req.GetSecretSources()); err != nil {
		return nil, err
	}
	sb, err := c.create(ctx, req.GetAppId(), true, req.GetDefinition(), req.GetTags(), env)
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateV2Response_builder{
		SandboxId:           sb.id,
		TaskId:              sb.taskID,
		Metadata:            pb.SandboxHandleMetadata_builder{AppId: sb.appID}.Build(),
		CommandRouterAccess: pb.CommandRouterAccess_builder{Jwt: sb.token, Url: c.server.routerURL(clientType(ctx))}.Build(),
	}.Build(), nil
}

func (c *controlPlane) SandboxCreate(ctx context.Context, req *pb.SandboxCreateRequest) (*pb.SandboxCreateResponse, error) {
	env := make(map[string]string)
	if err := c.mergeSources(env, req.GetDefinition().GetSecretIds(), nil); err != nil {
		return nil, err
	}
	sb, err := c.create(ctx, req.GetAppId(), false, req.GetDefinition(), req.GetTags(), env)
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateResponse_builder{SandboxId: sb.id}.Build(), nil
}

func (c *controlPlane) create(ctx context.Context, appID string, v2 bool, def *pb.Sandbox, tags []*pb.SandboxTag, env map[string]string) (*sandbox, error) {
	if err := c.validate(appID, def); err != nil {
		return nil, err
	}
	fresh := newSandbox(appID, v2, def, tags, environ(env))
	fresh.imageWorkdir = c.workspace.settings().ImageWorkdir
	sb, err := c.workspace.add(header(ctx, "x-idempotency-key"), fresh)
	if err != nil {
		return nil, err
	}
	if sb != fresh {
		return sb, nil
	}
	if err := sb.begin(); err != nil {
		return nil, err
	}
	return sb, nil
}

func (c *controlPlane) validate(appID string, def *pb.Sandbox) error {
	c.workspace.mu.Lock()
	known := slices.Contains(slices.Collect(maps.Values(c.workspace.apps)), appID)
	c.workspace.mu.Unlock()
	if !known {
		return status.Errorf(codes.NotFound, "App with ID %q not found", appID)
	}
	image, err := c.image(def.GetImageId())
	if err != nil {
		return err
	}
	if result := image.result(); result.GetStatus() != pb.GenericResult_GENERIC_STATUS_SUCCESS {
		return status.Errorf(codes.FailedPrecondition, "Image %s is not built", image.id)
	}
	if seconds := def.GetTimeoutSecs(); seconds == 0 || time.Duration(seconds)*time.Second > maxLifetime {
		return status.Errorf(codes.InvalidArgument, "timeout of %d seconds is not between 1 and %d", seconds, int(maxLifetime.Seconds()))
	}
	return validateNetwork(def.GetNetworkAccess())
}

func validateNetwork(access *pb.NetworkAccess) error {
	for _, entry := range access.GetAllowedCidrs() {
		prefix, err := netip.ParsePrefix(entry)
		if err != nil || !prefix.Addr().Is4() {
			return status.Errorf(codes.InvalidArgument, "invalid IPv4 CIDR %q", entry)
		}
	}
	if len(access.GetAllowedDomains()) > maxDomains {
		return status.Errorf(codes.InvalidArgument, "at most %d domains are allowed", maxDomains)
	}
	return nil
}

// mergeSources adds the values of secrets to env, later ones first in rank.
func (c *controlPlane) mergeSources(env map[string]string, secretIDs []string, sources []*pb.SecretSource) error {
	return c.workspace.mergeSources(env, secretIDs, sources)
}

func (w *workspace) mergeSources(env map[string]string, secretIDs []string, sources []*pb.SecretSource) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	add := func(id string) error {
		values, ok := w.secrets[id]
		if !ok {
			return status.Errorf(codes.NotFound, "Secret with ID %s not found", id)
		}
		maps.Copy(env, values)
		return nil
	}
	for _, id := range secretIDs {
		if err := add(id); err != nil {
			return err
		}
	}
	for _, source := range sources {
		if source.HasSecretId() {
			if err := add(source.GetSecretId()); err != nil {
				return err
			}
		}
		maps.Copy(env, source.GetEnv().GetContents())
	}
	return nil
}

// environ is the sandbox's environment: what images of the usual kind set, then
// values.
func environ(values map[string]string) []string {
	all := map[string]string{"PATH": guestPath, "HOME": "/root", "LANG": "C.UTF-8"}
	maps.Copy(all, values)
	env := make([]string, 0, len(all))
	for name, value := range all {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

func (c *controlPlane) wait(ctx context.Context, req *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	sb, err := c.workspace.sandbox(req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	lag := c.workspace.settings().PollLag
	result := sb.report(lag)
	if result == nil && req.GetTimeout() > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(float64(req.GetTimeout())*float64(time.Second)))
		defer cancel()
		result = sb.await(ctx, lag)
	}
	return pb.SandboxWaitResponse_builder{
		Result:   result,
		Metadata: pb.SandboxHandleMetadata_builder{AppId: sb.appID, Result: result}.Build(),
	}.Build(), nil
}

// await is report, but waits for a result until ctx ends.
func (sb *sandbox) await(ctx context.Context, lag time.Duration) *pb.GenericResult {
	select {
	case <-sb.finished:
	case <-ctx.Done():
		return nil
	}
	if result := sb.report(lag); result != nil {
		return result
	}
	sb.mu.Lock()
	visible := sb.finishedAt.Add(lag)
	sb.mu.Unlock()
	select {
	case <-time.After(time.Until(visible)):
	case <-ctx.Done():
	}
	return sb.report(lag)
}

func (c *controlPlane) terminate(id string) (*pb.SandboxTerminateResponse, error) {
	sb, err := c.workspace.sandbox(id)
	if err != nil {
		return nil, err
	}
	existing := sb.report(0)
	sb.finish(pb.GenericResult_GENERIC_STATUS_TERMINATED, 0)
	return pb.SandboxTerminateResponse_builder{ExistingResult: existing}.Build(), nil
}

func (c *controlPlane) taskID(id string) (*pb.SandboxGetTaskIdResponse, error) {
	sb, err := c.workspace.sandbox(id)
	if err != nil {
		return nil, err
	}
	if result := sb.report(0); result != nil {
		return pb.SandboxGetTaskIdResponse_builder{TaskResult: result}.Build(), nil
	}
	if !sb.v2 && c.workspace.settings().NoCapacity {
		return &pb.SandboxGetTaskIdResponse{}, nil
	}
	return pb.SandboxGetTaskIdResponse_builder{TaskId: &sb.taskID}.Build(), nil
}

func (c *controlPlane) SandboxGetCommandRouterAccess(ctx context.Context, req *pb.SandboxGetCommandRouterAccessRequest) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	sb, err := c.workspace.sandbox(req.GetSandboxId())
	if err != nil && req.GetTaskId() != "" {
		sb, err = c.workspace.task(req.GetTaskId())
	}
	if err != nil {
		return nil, err
	}
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: sb.token, Url: c.server.routerURL(clientType(ctx))}.Build(), nil
}

func (c *controlPlane) TaskGetCommandRouterAccess(ctx context.Context, req *pb.TaskGetCommandRouterAccessRequest) (*pb.TaskGetCommandRouterAccessResponse, error) {
	sb, err := c.workspace.task(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	return pb.TaskGetCommandRouterAccessResponse_builder{Jwt: sb.token, Url: c.server.routerURL(clientType(ctx))}.Build(), nil
}

func (c *controlPlane) list(req *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	w := c.workspace
	w.mu.Lock()
	settings := w.behaviour
	all := slices.Collect(maps.Values(w.sandboxes))
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *sandbox) int {
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.id, b.id))
	})
	limit := settings.PageSize
	if limit == 0 {
		limit = 100
	}
	page := make([]*pb.SandboxInfo, 0, limit)
	for _, sb := range all {
		before := req.GetBeforeTimestamp()
		if len(page) == limit {
			break
		}
		if (before != 0 && sb.createdAt() >= before) || (req.GetAppId() != "" && sb.appID != req.GetAppId()) {
			continue
		}
		if !req.GetIncludeFinished() && !sb.within(settings.ListLag) {
			continue
		}
		if sb.hasTags(req.GetTags()) {
			page = append(page, sb.info(settings.BareLists))
		}
	}
	return pb.SandboxListResponse_builder{Sandboxes: page}.Build(), nil
}

func (c *controlPlane) tags(id string) (*pb.SandboxTagsGetResponse, error) {
	sb, err := c.workspace.sandbox(id)
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return pb.SandboxTagsGetResponse_builder{Tags: sb.tags}.Build(), nil
}

func (c *controlPlane) setTags(req *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	sb, err := c.workspace.sandbox(req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	sb.setTags(req.GetTags())
	return &emptypb.Empty{}, nil
}

func (c *controlPlane) fromName(req *pb.SandboxGetFromNameRequest, v2 bool) (*pb.SandboxGetFromNameResponse, error) {
	w := c.workspace
	w.mu.Lock()
	appID := w.apps[req.GetEnvironmentName()+"/"+req.GetAppName()]
	all := slices.Collect(maps.Values(w.sandboxes))
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *sandbox) int { return b.created.Compare(a.created) })
	for _, sb := range all {
		if sb.v2 == v2 && sb.appID == appID && sb.name == req.GetSandboxName() && (sb.running() || req.GetIncludeTerminated()) {
			return pb.SandboxGetFromNameResponse_builder{SandboxId: sb.id}.Build(), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "Sandbox with name %q not found", req.GetSandboxName())
}
