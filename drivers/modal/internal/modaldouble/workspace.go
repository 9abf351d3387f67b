//go:build linux

package modaldouble

import (
	"crypto/rand"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Behaviour are the lags and limits of a server that are not one RPC's fault.
// The zero value is a service without any lag.
type Behaviour struct {
	// PollLag is how long a terminated sandbox is still reported as running.
	// About 35 s was seen on the service.
	PollLag time.Duration
	// ListLag is how long a finished sandbox stays in lists.
	ListLag time.Duration
	// NameLag is how long a finished sandbox's name stays taken.
	NameLag time.Duration
	// ExecTimeoutLag is how much later than asked a command is killed at its
	// timeout. The service answers with the kill or lets the client's own clock
	// win, at random; this decides which.
	ExecTimeoutLag time.Duration
	// HoldStreams keeps a command's output open while a background child of it
	// does, instead of ending it with the command.
	HoldStreams bool
	// ImageBuild is how long the first use of an image takes.
	ImageBuild time.Duration
	// ImageWorkdir is the working directory that images bring along. Empty means
	// the root.
	ImageWorkdir string
	// NoCapacity keeps V1 sandboxes (those with a GPU) from ever starting.
	NoCapacity bool
	// BareLists leaves names, tags and limits out of lists.
	BareLists bool
	// Bandwidth is how many bytes of output a second a client gets of one stream.
	// 0 means as many as the machine can move.
	Bandwidth int
	// PageSize is the length of a list page. 0 means 100.
	PageSize int
}

// workspace is the state behind the control plane and the router.
type workspace struct {
	dir string

	mu        sync.Mutex
	behaviour Behaviour
	apps      map[string]string
	images    map[string]*image
	secrets   map[string]map[string]string
	sandboxes map[string]*sandbox
	byTask    map[string]*sandbox
	byRequest map[string]*sandbox
	closed    bool
}

func newWorkspace(dir string) *workspace {
	return &workspace{
		dir:       dir,
		apps:      make(map[string]string),
		images:    make(map[string]*image),
		secrets:   make(map[string]map[string]string),
		sandboxes: make(map[string]*sandbox),
		byTask:    make(map[string]*sandbox),
		byRequest: make(map[string]*sandbox),
	}
}

// Configure changes the server's behaviour from now on.
func (s *Server) Configure(change func(*Behaviour)) {
	s.workspace.mu.Lock()
	defer s.workspace.mu.Unlock()
	change(&s.workspace.behaviour)
}

func (w *workspace) settings() Behaviour {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.behaviour
}

// Observed is what a test may know about a sandbox from outside.
type Observed struct {
	ID, Name, AppID string
	Running         bool
	Tags            map[string]string
	Timeout         time.Duration
	IdleTimeout     time.Duration
	Definition      *pb.Sandbox
}

// Sandboxes are all sandboxes ever made, in order of creation.
func (s *Server) Sandboxes() []Observed {
	w := s.workspace
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.sandboxes))
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b *sandbox) int { return a.created.Compare(b.created) })
	seen := make([]Observed, 0, len(all))
	for _, sb := range all {
		seen = append(seen, sb.observe())
	}
	return seen
}

// Running is how many sandboxes are running.
func (s *Server) Running() int {
	running := 0
	for _, sb := range s.Sandboxes() {
		if sb.Running {
			running++
		}
	}
	return running
}

// EndSandbox ends a sandbox the way the service does on its own, such as an
// eviction.
func (s *Server) EndSandbox(id string, cause pb.GenericResult_GenericStatus) error {
	sb, err := s.workspace.sandbox(id)
	if err != nil {
		return err
	}
	sb.finish(cause, 0)
	return nil
}

func (w *workspace) sandbox(id string) (*sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sb, ok := w.sandboxes[id]; ok {
		return sb, nil
	}
	return nil, status.Errorf(codes.NotFound, "Sandbox with ID %s not found", id)
}

func (w *workspace) task(id string) (*sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sb, ok := w.byTask[id]; ok {
		return sb, nil
	}
	return nil, status.Errorf(codes.NotFound, "task %s not found", id)
}

// add makes a sandbox. The request key makes a repeated request return the
// first one's sandbox.
func (w *workspace) add(requestKey string, sb *sandbox) (*sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first, ok := w.byRequest[requestKey]; ok && requestKey != "" {
		return first, nil
	}
	if w.closed {
		return nil, status.Error(codes.Unavailable, "the server is closing")
	}
	for _, other := range w.sandboxes {
		if sb.name != "" && other.appID == sb.appID && other.name == sb.name && other.within(w.behaviour.NameLag) {
			return nil, status.Errorf(codes.AlreadyExists, "Sandbox with name %q already exists", sb.name)
		}
	}
	dir := filepath.Join(w.dir, sb.id)
	g, err := makeGuest(dir, sb.definition)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "start the sandbox: %v", err)
	}
	sb.guest = g
	w.sandboxes[sb.id] = sb
	w.byTask[sb.taskID] = sb
	if requestKey != "" {
		w.byRequest[requestKey] = sb
	}
	return sb, nil
}

func makeGuest(dir string, definition *pb.Sandbox) (*guest, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	g, err := newGuest(dir, definition.GetResources())
	if err != nil {
		return nil, err
	}
	if err := g.connect(definition.GetNetworkAccess()); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (w *workspace) close() {
	w.mu.Lock()
	w.closed = true
	all := slices.Collect(maps.Values(w.sandboxes))
	w.mu.Unlock()
	for _, sb := range all {
		sb.finish(pb.GenericResult_GENERIC_STATUS_TERMINATED, 0)
		sb.release()
	}
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// crockford is the alphabet of ULIDs, which V2 sandbox IDs are.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

func random(alphabet string, length int) string {
	text := make([]byte, length)
	// crypto/rand never fails.
	_, _ = rand.Read(text)
	for i, b := range text {
		text[i] = alphabet[int(b)%len(alphabet)]
	}
	return string(text)
}
