//go:build linux

package modal_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"

	"github.com/sandboxctl/sandboxctl/drivers/modal/internal/modaldouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestCreateAsksForWhatWasSpecified(t *testing.T) {
	b := newBench(t)
	spec := newSpec()
	spec.Labels = map[string]string{"team": "blue"}
	spec.Workdir, spec.Env = "/srv/app", map[string]string{"A": "b"}
	spec.CPUs, spec.MemoryBytes, spec.IdleTimeout = 1.5, 300<<20+1, 90*time.Second+1
	spec.ExpiresAt = spec.CreatedAt.Add(2 * time.Hour)
	var events recorder
	sandbox, err := b.Create(t.Context(), spec, &events)
	if err != nil {
		t.Fatal(err)
	}
	if len(events.handles) != 1 || string(events.handles[0]) != string(sandbox.Handle) {
		t.Errorf("handles reported: %q, returned: %q", events.handles, sandbox.Handle)
	}
	seen := b.double.Sandboxes()[0]
	if seen.Name != "sandboxctl-"+spec.ID || seen.Timeout > 2*time.Hour || seen.Timeout < 2*time.Hour-5*time.Minute || seen.IdleTimeout != 91*time.Second {
		t.Errorf("at Modal: %+v", seen)
	}
	for name, value := range plugin.BackendLabels(spec) {
		if seen.Tags[name] != value {
			t.Errorf("tag %s is %q, want %q", name, seen.Tags[name], value)
		}
	}
	resources := seen.Definition.GetResources()
	if resources.GetMilliCpu() != 750 || resources.GetMilliCpuMax() != 750 || resources.GetMemoryMb() != 301 || resources.GetMemoryMbMax() != 301 {
		t.Errorf("resources: %v", resources)
	}
	if access := seen.Definition.GetNetworkAccess().GetNetworkAccessType(); access != pb.NetworkAccess_BLOCKED {
		t.Errorf("network: %v", access)
	}
	if sandbox.State != plugin.StateRunning || sandbox.Labels["team"] != "blue" || len(sandbox.Labels) != 1 || sandbox.Workdir != "/srv/app" || sandbox.Image != spec.Image {
		t.Errorf("returned: %+v", sandbox)
	}
}

func TestNetworkPolicies(t *testing.T) {
	b := newBench(t)
	for _, test := range []struct {
		policy  plugin.NetworkPolicy
		access  pb.NetworkAccess_NetworkAccessType
		entries []string
	}{
		{plugin.NetworkPolicy{Mode: plugin.NetworkOpen}, pb.NetworkAccess_OPEN, nil},
		{plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{"203.0.113.0/24"}}, pb.NetworkAccess_ALLOWLIST, []string{"203.0.113.0/24"}},
		{plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"*.example.com"}}, pb.NetworkAccess_ALLOWLIST, []string{"*.example.com"}},
		{plugin.NetworkPolicy{Mode: plugin.NetworkAllow}, pb.NetworkAccess_ALLOWLIST, nil},
	} {
		ref := b.create(t, func(s *plugin.SandboxSpec) {
			s.Network = test.policy
			s.Options = map[string]string{"host-match": "sni"}
		})
		all := b.double.Sandboxes()
		access := all[len(all)-1].Definition.GetNetworkAccess()
		entries := append(access.GetAllowedCidrs(), access.GetAllowedDomains()...)
		if access.GetNetworkAccessType() != test.access || !slices.Equal(entries, test.entries) {
			t.Errorf("%+v became %v", test.policy, access)
		}
		found, err := b.Inspect(t.Context(), ref)
		if err != nil || fmt.Sprint(found.Network) != fmt.Sprint(test.policy) {
			t.Errorf("%+v is reported as %+v, %v", test.policy, found, err)
		}
	}
}

func TestRefusalsComeBeforeAnyCall(t *testing.T) {
	b := newBench(t)
	allow := func(hosts, cidrs []string, options map[string]string) func(*plugin.SandboxSpec) {
		return func(s *plugin.SandboxSpec) {
			s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: hosts, CIDRs: cidrs}
			s.Options = options
		}
	}
	sni := map[string]string{"host-match": "sni"}
	for name, change := range map[string]func(*plugin.SandboxSpec){
		"no expiry":          func(s *plugin.SandboxSpec) { s.ExpiresAt = time.Time{} },
		"relative workdir":   func(s *plugin.SandboxSpec) { s.Workdir = "app" },
		"variable name":      func(s *plugin.SandboxSpec) { s.Env = map[string]string{"A-B": "c"} },
		"tiny cpus":          func(s *plugin.SandboxSpec) { s.CPUs = 0.001 },
		"hosts without sni":  allow([]string{"pkg.example.net"}, nil, nil),
		"unknown host match": allow([]string{"pkg.example.net"}, nil, map[string]string{"host-match": "address"}),
		"hosts and cidrs":    allow([]string{"pkg.example.net"}, []string{"203.0.113.0/24"}, sni),
		"bare wildcard":      allow([]string{"*"}, nil, sni),
		"single label":       allow([]string{"localhost"}, nil, sni),
		"inner wildcard":     allow([]string{"a.*.org"}, nil, sni),
		"address as host":    allow([]string{"192.0.2.1"}, nil, sni),
		"too many hosts":     allow(slices.Repeat([]string{"a.org"}, 101), nil, sni),
		"ipv6":               allow(nil, []string{"2001:db8::/32"}, nil),
		"every address":      allow(nil, []string{"0.0.0.0/0"}, nil),
		"list beside open": func(s *plugin.SandboxSpec) {
			s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkOpen, CIDRs: []string{"203.0.113.0/24"}}
		},
		"no address": allow(nil, []string{"example.org"}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec()
			change(spec)
			_, err := b.Create(t.Context(), spec, &recorder{})
			var typed *plugin.Error
			if !errors.As(err, &typed) || typed.Kind != plugin.KindRefused || typed.Option == "" {
				t.Errorf("got %v", err)
			}
		})
	}
	if calls := b.double.TotalCalls(); calls != 0 {
		t.Errorf("Modal was called %d times", calls)
	}
}

func TestRepeatedRequestReturnsTheSameSandbox(t *testing.T) {
	b := newBench(t)
	spec := newSpec()
	first, err := b.Create(t.Context(), spec, &recorder{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Create(t.Context(), spec, &recorder{})
	if err != nil || again.ID != first.ID || len(b.double.Sandboxes()) != 1 {
		t.Errorf("got %+v, %v", again, err)
	}
}

func TestTakenNameIsNeverAdopted(t *testing.T) {
	b := newBench(t)
	spec := newSpec()
	if _, err := b.Create(t.Context(), spec, &recorder{}); err != nil {
		t.Fatal(err)
	}
	spec.RequestID = "another request"
	_, err := b.Create(t.Context(), spec, &recorder{})
	wantKind(t, err, plugin.KindConflict)
	if b.double.Running() != 1 {
		t.Error("the other request's sandbox was touched")
	}
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.create(t, nil) // so that the image is known and only the create is slow
	b.double.Inject(modaldouble.Fault{Method: "SandboxCreateV2", Delay: time.Second, IgnoreCancel: true})
	_, err := b.Create(b.untilCalled(t, "SandboxCreateV2", 2), newSpec(), &recorder{})
	if err == nil {
		t.Error("it was created")
	}
	if all := b.double.Sandboxes(); len(all) != 2 || all[1].Running {
		t.Errorf("the late sandbox still runs, or never came: %+v", all)
	}
}

func TestCreateThatMayCompleteLaterSaysSo(t *testing.T) {
	b := newBench(t)
	b.create(t, nil)
	b.double.Inject(modaldouble.Fault{Method: "SandboxCreateV2", Delay: time.Hour, IgnoreCancel: true})
	_, err := b.Create(b.untilCalled(t, "SandboxCreateV2", 2), newSpec(), &recorder{})
	var typed *plugin.Error
	if !errors.As(err, &typed) || !typed.LeftBehind {
		t.Errorf("got %+v (%v)", typed, err)
	}
}

// untilCalled is a context that ends once Modal was called that often.
func (b *bench) untilCalled(t *testing.T, method string, times int) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for b.double.Calls(method) < times && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		cancel()
	}()
	t.Cleanup(func() { cancel(); <-watched })
	return ctx
}

func TestLostAnswersToACreateLeaveNothing(t *testing.T) {
	b := newBench(t)
	b.double.Inject(modaldouble.Fault{Method: "SandboxCreateV2", LoseAnswer: true})
	_, err := b.Create(t.Context(), newSpec(), &recorder{})
	wantKind(t, err, plugin.KindUnavailable)
	if len(b.double.Sandboxes()) != 1 || b.double.Running() != 0 {
		t.Errorf("left: %+v", b.double.Sandboxes())
	}
}

func TestRateLimitIsToldAndNotWaitedForLong(t *testing.T) {
	b := newBench(t)
	b.double.Inject(modaldouble.Fault{
		Method: "SandboxCreateV2", Code: codes.ResourceExhausted, RetryAfter: time.Minute,
		Message: "Sandbox creation rate limit (5/s) exceeded",
	})
	begin := time.Now()
	_, err := b.Create(t.Context(), newSpec(), &recorder{})
	var typed *plugin.Error
	if !errors.As(err, &typed) || typed.Kind != plugin.KindRateLimited || typed.RetryAfter != time.Minute {
		t.Errorf("got %v", err)
	}
	if time.Since(begin) > 30*time.Second {
		t.Errorf("it took %v", time.Since(begin))
	}
}

func TestStatusesOfACreate(t *testing.T) {
	b := newBench(t)
	for code, kind := range map[codes.Code]plugin.Kind{
		codes.ResourceExhausted: plugin.KindUnavailable, // no capacity, on the newer backend
		codes.Unauthenticated:   plugin.KindAuth,
		codes.PermissionDenied:  plugin.KindAuth,
	} {
		b.double.ClearFaults()
		b.double.Inject(modaldouble.Fault{Method: "SandboxCreateV2", Code: code, Message: "no"})
		_, err := b.Create(t.Context(), newSpec(), &recorder{})
		wantKind(t, err, kind)
	}
}

func TestCancelBeforeTheCreateLeavesNothingToLookFor(t *testing.T) {
	b := newBench(t)
	b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.ImageBuild = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := &canceller{cancel: cancel}
	_, err := b.Create(ctx, newSpec(), events)
	var typed *plugin.Error
	if plugin.KindOf(err) != plugin.KindCanceled || errors.As(err, &typed) && typed.LeftBehind {
		t.Errorf("got %+v (%v)", typed, err)
	}
	if calls := b.double.Calls("SandboxGetFromNameV2") + b.double.Calls("SandboxCreateV2"); calls != 0 {
		t.Errorf("a sandbox that was never asked for was looked for: %d calls", calls)
	}
}

// canceller cancels at the first word of progress.
type canceller struct {
	recorder
	cancel func()
}

func (c *canceller) Progress(plugin.Progress) { c.cancel() }

func TestTakenNameThatCannotBeLookedUpSaysSo(t *testing.T) {
	b := newBench(t)
	spec := newSpec()
	if _, err := b.Create(t.Context(), spec, &recorder{}); err != nil {
		t.Fatal(err)
	}
	b.double.Inject(modaldouble.Fault{Method: "SandboxGetFromNameV2", Code: codes.PermissionDenied, Message: "not now"})
	_, err := b.Create(t.Context(), spec, &recorder{})
	var typed *plugin.Error
	if !errors.As(err, &typed) || !typed.LeftBehind {
		t.Errorf("got %+v (%v)", typed, err)
	}
}

func TestGPUSandboxWithoutCapacityIsRemovedOnCancel(t *testing.T) {
	b := newBench(t)
	b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.NoCapacity = true })
	spec := newSpec()
	spec.GPU = "T4"
	if _, err := b.Create(b.untilCalled(t, "SandboxGetTaskId", 2), spec, &recorder{}); err == nil {
		t.Error("it was created")
	}
	if len(b.double.Sandboxes()) != 1 || b.double.Running() != 0 {
		t.Errorf("left: %+v", b.double.Sandboxes())
	}
}

func TestImages(t *testing.T) {
	b := newBench(t)
	b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.ImageBuild = 300 * time.Millisecond })
	var events recorder
	if _, err := b.Create(t.Context(), newSpec(), &events); err != nil {
		t.Fatal(err)
	}
	if len(events.progress) != 1 || !strings.Contains(events.progress[0], "python:3.12-slim") {
		t.Errorf("progress: %q", events.progress)
	}
	b.create(t, nil)
	if calls := b.double.Calls("ImageGetOrCreate"); calls != 1 {
		t.Errorf("the image was asked for %d times, want once", calls)
	}
	b.double.ForgetImages()
	b.create(t, nil)
	if calls := b.double.Calls("ImageGetOrCreate"); calls != 2 {
		t.Errorf("a forgotten image was asked for %d times, want twice in all", calls)
	}
	missing := newSpec()
	missing.Image = "registry.invalid/nothing:1"
	_, err := b.Create(t.Context(), missing, &recorder{})
	wantKind(t, err, plugin.KindInvalid)
	if err == nil || !strings.Contains(err.Error(), missing.Image) {
		t.Errorf("the error does not name the image: %v", err)
	}
}

func TestRealTLS(t *testing.T) {
	authority, err := modaldouble.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	bundle := t.TempDir() + "/ca.pem"
	writeFile(t, bundle, authority.PEM)
	b := newBenchWith(t, setup{double: modaldouble.Options{TLS: authority.Server}, env: map[string]string{"SSL_CERT_FILE": bundle}})
	if got := b.shell(t, b.create(t, nil), "echo secure"); got.stdout != "secure\n" {
		t.Errorf("got %+v", got)
	}
}

func TestHandleHoldsNoSecret(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, func(s *plugin.SandboxSpec) { s.Env = map[string]string{"PASSWORD": "hunter2"} })
	var fields map[string]any
	if err := json.Unmarshal(ref.Handle, &fields); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(ref.Handle), "hunter2") || strings.Contains(fmt.Sprint(b.double.Sandboxes()[0].Tags), "hunter2") {
		t.Errorf("the handle or the tags hold a secret: %s", ref.Handle)
	}
	if b.stderr.String() != "" {
		t.Errorf("the driver logged without being asked: %s", b.stderr)
	}
}
