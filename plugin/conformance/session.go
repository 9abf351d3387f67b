package conformance

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// caseLimit is how long a case may take that says nothing else.
const caseLimit = 2 * time.Minute

// promptly is how long what must not wait may take. What cases make it wait for, if it
// does, lasts longer than stuck, and a busy machine needs seconds for what takes none.
const promptly = 20 * time.Second

// stuck is the time limit of commands that end by themselves unless something is wrong.
const stuck = 50 * time.Second

// cleanupLimit is for removing one sandbox, on a fresh context.
const cleanupLimit = time.Minute

// leaseOfCases is how long sandboxes live when the suite itself dies.
const leaseOfCases = 30 * time.Minute

// Session is a running driver with the sandbox that cases share.
type Session struct {
	target Target
	driver *Driver
	owner  string

	sharing sync.Mutex
	shared  *plugin.Sandbox
	// failed is why there is none; a driver that cannot create is not asked again
	// by every case.
	failed error
}

// NewSession starts the driver. Close ends it.
func NewSession(ctx context.Context, target Target) (*Session, error) {
	driver, err := target.Start(ctx)
	if err != nil {
		return nil, err
	}
	return &Session{target: target, driver: driver, owner: "conformance-" + random(8)}, nil
}

// NewReport is a report on the driver without any results yet.
func (s *Session) NewReport() Report {
	return Report{
		Driver: s.driver.Info.Name, Version: s.driver.Info.Version, CheckedAgainst: s.target.CheckedAgainst,
		StartedAt: time.Now().UTC(), Results: []Result{},
	}
}

// Close removes the shared sandbox and ends the driver.
func (s *Session) Close() {
	s.dropShared()
	s.driver.Close()
}

// dropShared removes the shared sandbox, so that the next case gets a new one.
func (s *Session) dropShared() {
	s.sharing.Lock()
	sandbox := s.shared
	s.shared = nil
	s.sharing.Unlock()
	if sandbox == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	// What could not be removed is found by the last case.
	_, _ = s.driver.Destroy(ctx, plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle})
}

// Run runs one case.
func (s *Session) Run(ctx context.Context, c Case) Result {
	result := Result{ID: c.ID, Group: c.Group, Reason: c.Reason, Source: c.Source, index: c.index}
	for _, need := range c.Needs {
		if !need.claimed(s.driver.Info.Capabilities) {
			result.Outcome, result.Detail = Skipped, "the driver does not claim "+need.Capability
			return result
		}
	}
	limit := c.Limit
	if limit == 0 {
		limit = caseLimit
	}
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := &T{ctx: ctx, session: s, name: c.ID}
	t.run(c.run)
	if ctx.Err() == context.DeadlineExceeded {
		t.Errorf("it was not done after %v", limit)
	}
	result.Outcome, result.Detail = t.outcome()
	result.Seconds = time.Since(started).Seconds()
	return result
}

// sharedSandbox makes the sandbox that cases share when the first one asks for it.
func (s *Session) sharedSandbox(ctx context.Context) (*plugin.Sandbox, error) {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	if s.shared == nil && s.failed == nil {
		s.shared, s.failed = s.driver.Create(ctx, s.spec(), &recorder{})
	}
	return s.shared, s.failed
}

// spec is a specification that every driver can enforce.
func (s *Session) spec() *plugin.SandboxSpec {
	capabilities := s.driver.Info.Capabilities
	spec := &plugin.SandboxSpec{
		RequestID: random(16),
		ID:        "sb-" + random(12),
		Name:      "conformance-" + random(8),
		Owner:     s.owner,
		Image:     s.target.Image,
		Options:   maps.Clone(s.target.Options),
		Network:   plugin.NetworkPolicy{Mode: plugin.NetworkNone},
		CreatedAt: time.Now().UTC().Truncate(time.Second),
	}
	if spec.Image == "" {
		spec.Image = s.driver.Info.DefaultImage
	}
	if !capabilities.Network.None {
		spec.Network.Mode = plugin.NetworkOpen
	}
	spec.ExpiresAt = spec.CreatedAt.Add(s.lease(leaseOfCases))
	return spec
}

// lease brings a lifetime into the limits of the driver.
func (s *Session) lease(wanted time.Duration) time.Duration {
	limits := s.driver.Info.Capabilities.Lease
	if limits.MaxTTL > 0 {
		wanted = min(wanted, limits.MaxTTL)
	}
	return max(wanted, limits.MinTTL)
}

// random returns n characters of lower-case base32.
func random(n int) string {
	bytes := make([]byte, n)
	_, _ = rand.Read(bytes) // never fails, by its documentation
	return strings.ToLower(base32.StdEncoding.EncodeToString(bytes))[:n]
}
