//go:build linux

package modaldouble

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// maxMessage is the largest message the vendor's clients send or accept.
const maxMessage = 100 << 20

// Options configure a Server.
type Options struct {
	// Host is the address to listen on. The vendor's clients speak plain text
	// to the router only when the control plane is on 127.0.0.1 or localhost,
	// so a server with TLS needs another loopback address. Empty means
	// 127.0.0.1, or 127.0.0.2 with TLS.
	Host string
	// TLS, when set, is used by both services.
	TLS *tls.Config
	// TokenID and TokenSecret are the only credentials accepted. Empty values
	// mean "ak-double" and "as-double".
	TokenID, TokenSecret string
	// Dir holds the sandboxes' roots. Empty means a new temporary directory
	// that Close removes.
	Dir string
}

// Server is one Modal workspace: a control plane and a command router.
type Server struct {
	opts      Options
	ownDir    bool
	control   net.Listener
	routers   *trackedListener
	grpc      *grpc.Server
	serving   sync.WaitGroup
	faults    faults
	calls     callCounts
	workspace *workspace
}

// Start listens on free ports and serves until Close.
func Start(opts Options) (*Server, error) {
	if opts.Host == "" {
		opts.Host = "127.0.0.1"
		if opts.TLS != nil {
			opts.Host = "127.0.0.2"
		}
	}
	if opts.TokenID == "" {
		opts.TokenID, opts.TokenSecret = "ak-double", "as-double"
	}
	s := &Server{opts: opts}
	if s.opts.Dir == "" {
		dir, err := os.MkdirTemp("", "modaldouble-")
		if err != nil {
			return nil, fmt.Errorf("make a directory for the sandboxes: %w", err)
		}
		s.opts.Dir, s.ownDir = dir, true
	}
	if err := s.listen(); err != nil {
		s.removeDir()
		return nil, err
	}
	s.workspace = newWorkspace(s.opts.Dir)
	s.serve()
	return s, nil
}

func (s *Server) listen() error {
	control, err := net.Listen("tcp", net.JoinHostPort(s.opts.Host, "0"))
	if err != nil {
		return fmt.Errorf("listen for the control plane: %w", err)
	}
	router, err := net.Listen("tcp", net.JoinHostPort(s.opts.Host, "0"))
	if err != nil {
		return errors.Join(fmt.Errorf("listen for the command router: %w", err), control.Close())
	}
	s.control, s.routers = control, &trackedListener{Listener: router}
	return nil
}

func (s *Server) serve() {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(s.countUnary, s.authUnary, s.faultUnary),
		grpc.ChainStreamInterceptor(s.countStream, s.authStream, s.faultStream),
		// The vendor's clients ping every 30 s, with or without a stream.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if s.opts.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.opts.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	pb.RegisterModalClientServer(s.grpc, &controlPlane{server: s, workspace: s.workspace})
	pb.RegisterTaskCommandRouterServer(s.grpc, &router{workspace: s.workspace})
	for _, l := range []net.Listener{s.control, s.routers} {
		s.serving.Go(func() {
			// Serve returns when Close stops the server; there is nobody to
			// tell about anything else, and the clients notice.
			_ = s.grpc.Serve(l)
		})
	}
}

// Close ends every sandbox, stops serving and removes what Start made.
func (s *Server) Close() {
	s.workspace.close()
	s.grpc.Stop()
	s.serving.Wait()
	s.removeDir()
}

func (s *Server) removeDir() {
	if s.ownDir {
		_ = os.RemoveAll(s.opts.Dir)
	}
}

// URL is the control plane's address, as MODAL_SERVER_URL wants it.
func (s *Server) URL() string {
	scheme := "http"
	if s.opts.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + s.control.Addr().String()
}

// Env is what a vendor client needs in its environment to use this server and
// nothing else.
func (s *Server) Env() []string {
	return []string{
		"MODAL_SERVER_URL=" + s.URL(),
		"MODAL_TOKEN_ID=" + s.opts.TokenID,
		"MODAL_TOKEN_SECRET=" + s.opts.TokenSecret,
		"MODAL_CONFIG_PATH=/nonexistent/modal.toml",
	}
}

// routerURL is the command router's address for one client. The Go and
// JavaScript clients insist on https and then speak plain text to loopback; the
// Python client does what the scheme says.
func (s *Server) routerURL(clientType pb.ClientType) string {
	if s.opts.TLS == nil && clientType == pb.ClientType_CLIENT_TYPE_CLIENT {
		return "http://" + s.routers.Addr().String()
	}
	return "https://" + s.routers.Addr().String()
}

// DropRouterConnections cuts every open connection to the command router, as a
// network failure would.
func (s *Server) DropRouterConnections() { s.routers.dropAll() }

// trackedListener remembers its open connections so that they can be cut.
type trackedListener struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func (l *trackedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = make(map[net.Conn]struct{})
	}
	l.open[tracked] = struct{}{}
	return tracked, nil
}

func (l *trackedListener) dropAll() {
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for conn := range open {
		_ = conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	listener *trackedListener
}

func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
