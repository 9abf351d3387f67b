//go:build linux

package modaldouble

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// tokenLife is long enough that no client refreshes a token during a test.
const tokenLife = time.Hour

// unsignedToken has the shape of a JWT, which every client parses for its
// expiry before it trusts it, and carries subject to tell tokens apart.
func unsignedToken(subject string) string {
	part := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, subject, time.Now().Add(tokenLife).Unix())
	return part([]byte(`{"alg":"none"}`)) + "." + part([]byte(claims)) + "." + part([]byte("unsigned"))
}

func header(ctx context.Context, name string) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func clientType(ctx context.Context) pb.ClientType {
	n, err := strconv.Atoi(header(ctx, "x-modal-client-type"))
	if err != nil {
		return pb.ClientType_CLIENT_TYPE_UNSPECIFIED
	}
	return pb.ClientType(n)
}

// authorize checks workspace credentials on the control plane. The router's
// calls name a task, and are checked against that task's token where the task
// is looked up.
func (s *Server) authorize(ctx context.Context, method string) error {
	if strings.Contains(method, "TaskCommandRouter") {
		return nil
	}
	id, secret := header(ctx, "x-modal-token-id"), header(ctx, "x-modal-token-secret")
	if id == "" || secret == "" {
		return status.Error(codes.Unauthenticated, "Token missing. Could not authenticate client.")
	}
	if !sameSecret(id, s.opts.TokenID) || !sameSecret(secret, s.opts.TokenSecret) {
		return status.Error(codes.Unauthenticated, "Token validation failed. Could not authenticate client.")
	}
	return nil
}

func sameSecret(got, want string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func (s *Server) authUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := s.authorize(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (s *Server) authStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := s.authorize(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, stream)
}
