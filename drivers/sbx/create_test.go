package sbx

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestCreateFaults(t *testing.T) {
	limited := sbxdouble.CreateRateLimited
	tests := []struct {
		name   string
		faults []string
		kind   plugin.Kind // "" when it has to work in the end
		tells  string
	}{
		{"rate limit that passes", []string{limited, limited}, "", ""},
		{"rate limit that stays", []string{limited, limited, limited, limited, limited}, plugin.KindRateLimited, "429"},
		{"name leaked by a crash", []string{sbxdouble.CreateLeaksName}, plugin.KindUnavailable, "failed to run sandbox container"},
		{"network left by a crash", []string{sbxdouble.CreateNetworkLeft}, "", ""},
		{"network left by a crash, told briefly", []string{sbxdouble.CreateNetworkBare}, "", ""},
		{"mount denied", []string{sbxdouble.CreateMountDenied}, plugin.KindRefused, "mount policy"},
		{"mount silently missing", []string{sbxdouble.CreateMountSilent}, plugin.KindRefused, "without its workspace"},
		{"bad image", []string{sbxdouble.CreateBadImage}, plugin.KindInvalid, "pull failed for image"},
		{"no KVM", []string{sbxdouble.CreateNoKVM}, plugin.KindUnavailable, "KVM error"},
		{"fails although it made one", []string{sbxdouble.CreateDirty}, plugin.KindUnavailable, "awaiting headers"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, sbxdouble.Config{CreateFaults: test.faults})
			seen := &events{}
			sandbox, err := b.Create(t.Context(), newSpec(plugin.NetworkNone), seen)
			if test.kind == "" {
				if err != nil {
					t.Fatal(told(err))
				}
				if n := len(seen.handles); n != len(test.faults)+1 || string(sandbox.Handle) != seen.handles[n-1] || seen.handles[0] == seen.handles[1] {
					t.Errorf("handles %q, the sandbox's is %q", seen.handles, sandbox.Handle)
				}
				if test.faults[0] == limited && !slices.ContainsFunc(seen.steps, func(step string) bool { return strings.Contains(step, "trying again") }) {
					t.Errorf("the user was not told why it takes so long: %q", seen.steps)
				}
				b.create(newSpec(plugin.NetworkNone))
				return
			}
			wantError(t, err, test.kind, test.tells)
			b.nothingLeft()
			if test.kind == plugin.KindRateLimited && len(b.called("create", "--quiet")) != createAttempts {
				t.Errorf("%d attempts", len(b.called("create", "--quiet")))
			}
		})
	}
}

// An attempt that failed may have made a sandbox all the same.
func TestNoAttemptIsLeftBehind(t *testing.T) {
	b := newBench(t, sbxdouble.Config{CreateFaults: []string{sbxdouble.CreateDirtyLimit, sbxdouble.CreateDirtyLimit}})
	ref := b.open()
	if gone, err := b.Destroy(t.Context(), ref); gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	b.nothingLeft()
}

// A name that is taken by something that is not ours is left alone.
func TestTakenName(t *testing.T) {
	for _, seed := range []int64{0, allYes} {
		b := newBench(t, sbxdouble.Config{Seed: seed})
		spec := newSpec(plugin.NetworkNone)
		theirs := sandboxName(spec.ID, 0)
		b.sbx("create", "--name", theirs, "shell", t.TempDir())
		sandbox, err := b.Create(t.Context(), spec, &events{})
		if err != nil {
			t.Fatal(told(err))
		}
		if string(sandbox.Handle) == theirs {
			t.Error("the sandbox of another was taken over")
		}
	}
}

func TestFailedRollbackIsTold(t *testing.T) {
	b := newBench(t, sbxdouble.Config{CreateFaults: []string{sbxdouble.CreateMountSilent}, RmFails: true})
	spec := newSpec(plugin.NetworkNone)
	seen := &events{}
	_, err := b.Create(t.Context(), spec, seen)
	wantError(t, err, plugin.KindRefused, "without its workspace")
	var typed *plugin.Error
	if !errors.As(err, &typed) || !typed.LeftBehind {
		t.Errorf("%+v does not say that something is left", err)
	}
	// gc finds it by its id alone and removes it once sbx can.
	_, err = b.Destroy(t.Context(), plugin.Ref{ID: spec.ID})
	wantError(t, err, plugin.KindUnavailable, "device or resource busy")
	b.double.Change(t, func(c *sbxdouble.Config) { c.RmFails = false })
	if gone, err := b.Destroy(t.Context(), plugin.Ref{ID: spec.ID}); gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	b.nothingLeft()
}

func TestCreateIsCancelled(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	seen := &cancelling{cancel: cancel}
	_, err := b.Create(ctx, newSpec(plugin.NetworkNone), seen)
	if plugin.KindOf(err) != plugin.KindCanceled {
		t.Errorf("%v", err)
	}
	b.nothingLeft()
}

// cancelling ends a create as soon as something exists.
type cancelling struct {
	events
	cancel context.CancelFunc
}

func (c *cancelling) Created(handle []byte) {
	c.events.Created(handle)
	c.cancel()
}

func TestCreateHangs(t *testing.T) {
	b := newBench(t, sbxdouble.Config{}, "create_timeout=300ms")
	b.double.Change(t, func(c *sbxdouble.Config) { c.Hang = []string{"create"} })
	// The probe asks for help, which does not hang; the create does.
	_, err := b.Create(t.Context(), newSpec(plugin.NetworkNone), &events{})
	wantError(t, err, plugin.KindUnavailable, "did not answer", "sbx diagnose")
	b.nothingLeft()
}

func TestHungDaemon(t *testing.T) {
	b := newBench(t, sbxdouble.Config{}, "call_timeout=300ms")
	ref := plugin.Ref{ID: "sb-none"}
	b.double.Change(t, func(c *sbxdouble.Config) { c.Hang = []string{"*"} })
	started := time.Now()
	_, err := b.List(t.Context(), plugin.ListRequest{})
	wantError(t, err, plugin.KindUnavailable, "sandboxd")
	_, err = b.Create(t.Context(), newSpec(plugin.NetworkNone), &events{})
	wantError(t, err, plugin.KindUnavailable, "sandboxd")
	if gone, err := b.Destroy(t.Context(), ref); !gone || err != nil {
		t.Errorf("a sandbox that there is no record of: %v, %v", gone, err)
	}
	checks, err := b.CheckHealth(t.Context())
	if err != nil || checks[len(checks)-1].Status != plugin.CheckFailed || checks[len(checks)-1].Fix == "" {
		t.Errorf("%+v, %v", checks, err)
	}
	if took := time.Since(started); took > promptly {
		t.Errorf("took %s", took)
	}
	b.nothingLeft()
}

func TestManyCreatesAtOnce(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			if _, err := b.Create(t.Context(), newSpec(plugin.NetworkNone), &events{}); err != nil {
				t.Error(told(err))
			}
		})
	}
	group.Wait()
	if n := len(b.double.Sandboxes(t)); n != 6 {
		t.Errorf("%d sandboxes", n)
	}
}

func TestBadSpecs(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	for name, test := range map[string]struct {
		edit func(*plugin.SandboxSpec)
		kind plugin.Kind
		text string
	}{
		"variable name": {func(s *plugin.SandboxSpec) { s.Env = map[string]string{"A.B": "c"} }, plugin.KindInvalid, "A.B"},
		"image":         {func(s *plugin.SandboxSpec) { s.Image = "no-such-image" }, plugin.KindInvalid, "pull failed"},
		"workdir":       {func(s *plugin.SandboxSpec) { s.Workdir = "/proc/nowhere" }, plugin.KindPath, "/proc/nowhere"},
	} {
		spec := newSpec(plugin.NetworkNone)
		test.edit(spec)
		_, err := b.Create(t.Context(), spec, &events{})
		if plugin.KindOf(err) != test.kind || !strings.Contains(told(err), test.text) {
			t.Errorf("%s: %v", name, err)
		}
		b.nothingLeft()
	}
}

func TestUnreadableRecordIsAWarning(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	b.open()
	if err := os.MkdirAll(b.stateDir+"/sandboxes/sb-broken", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.stateDir+"/sandboxes/sb-broken/record.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := b.List(t.Context(), plugin.ListRequest{})
	if err != nil || len(list.Sandboxes) != 1 || len(list.Warnings) != 1 || !strings.Contains(list.Warnings[0], "sb-broken") {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestDestroyRemovesWhatACrashedCreateLeft(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	for _, left := range []string{"sb-crashed1/workspace", "sb-crashed2"} {
		if err := os.MkdirAll(b.stateDir+"/sandboxes/"+left, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"sb-crashed1", "sb-crashed2", "sb-never", "../sandboxes", ""} {
		if gone, err := b.Destroy(t.Context(), plugin.Ref{ID: id, Handle: []byte("box")}); !gone || err != nil {
			t.Errorf("%q: %v, %v", id, gone, err)
		}
	}
	b.nothingLeft()
}

// A handle without a record is trusted only as far as its name is one of ours.
func TestForeignSandboxIsLeftAlone(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	b.sbx("create", "--name", "theirs", "shell", t.TempDir())
	if gone, err := b.Destroy(t.Context(), plugin.Ref{ID: "sb-x", Handle: []byte("theirs")}); !gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	if got := b.double.Sandboxes(t); !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("%v", got)
	}
	if list, err := b.List(t.Context(), plugin.ListRequest{}); err != nil || len(list.Sandboxes) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
