package sbx

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// everyDouble runs a test on every generation, and with different answers to what
// nobody has published; the oldest and the newest give both answers to each question.
func everyDouble(t *testing.T, run func(t *testing.T, c sbxdouble.Config)) {
	for _, c := range []sbxdouble.Config{
		{Generation: sbxdouble.Gen035, Seed: 0},
		{Generation: sbxdouble.Gen035, Seed: allYes},
		{Generation: sbxdouble.Gen039, Seed: mixed},
		{Generation: sbxdouble.Gen042, Seed: allYes &^ mixed},
		{Generation: sbxdouble.Gen045, Seed: 0},
		{Generation: sbxdouble.Gen045, Seed: allYes},
	} {
		t.Run(fmt.Sprintf("%s/seed=%d", c.Generation, c.Seed), func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

func TestLifeOfASandbox(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		spec := newSpec(plugin.NetworkNone)
		spec.Env = map[string]string{"PLAIN": "v", "ODD": "a 'b' \"c\"\n$(d); `e`\\"}
		spec.Labels = map[string]string{"team": "blue"}
		spec.Workdir = "/srv/work dir"
		spec.ExpiresAt = time.Now().Add(time.Hour).Truncate(time.Second)
		seen := &events{}
		made, err := b.Create(t.Context(), spec, seen)
		if err != nil {
			t.Fatal(told(err))
		}
		if len(seen.handles) != 1 || seen.handles[0] != string(made.Handle) {
			t.Errorf("handles %q, the sandbox's is %q", seen.handles, made.Handle)
		}
		ref := plugin.Ref{ID: made.ID, Handle: made.Handle}

		if got := b.sh(ref, `printf %s "$ODD"; pwd`); got != spec.Env["ODD"]+"/srv/work dir\n" {
			t.Errorf("environment and workdir: %q", got)
		}
		r, err := b.exec(ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", `printf 'out\000\036'; echo err >&2; exit 3`}}, "")
		if err != nil || r.Code != 3 || r.Reason != plugin.ExitExited || r.stdout != "out\x00\x1e" || r.stderr != "err\n" {
			t.Errorf("%+v, %v", r, err)
		}
		list, err := b.List(t.Context(), plugin.ListRequest{})
		if err != nil || len(list.Sandboxes) != 1 {
			t.Fatalf("list: %+v, %v", list, err)
		}
		row := list.Sandboxes[0]
		if row.ID != spec.ID || row.Name != "box" || row.Owner != "owner" || row.State != plugin.StateRunning || !maps.Equal(row.Labels, spec.Labels) ||
			!row.ExpiresAt.Equal(spec.ExpiresAt) || row.Image != "python:3.12-slim" || row.Network.Mode != plugin.NetworkNone {
			t.Errorf("row %+v", row)
		}
		later := time.Now().Add(5 * time.Hour).Truncate(time.Second)
		if kept, err := b.Renew(t.Context(), ref, later); err != nil || !kept.Equal(later) {
			t.Errorf("renew: %v, %v", kept, err)
		}
		if one, err := b.Inspect(t.Context(), ref); err != nil || !one.ExpiresAt.Equal(later) || !maps.Equal(one.Labels, spec.Labels) {
			t.Errorf("inspect: %+v, %v", one, err)
		}
		workspace := filepath.Join(b.stateDir, "sandboxes", spec.ID, "workspace")
		b.sh(ref, "echo hello >'"+workspace+"/shared'")
		if text, err := os.ReadFile(filepath.Join(workspace, "shared")); err != nil || string(text) != "hello\n" {
			t.Errorf("workspace: %q, %v", text, err)
		}
		if gone, err := b.Destroy(t.Context(), ref); gone || err != nil {
			t.Errorf("destroy: %v, %v", gone, err)
		}
		b.nothingLeft()
		if gone, err := b.Destroy(t.Context(), ref); !gone || err != nil {
			t.Errorf("second destroy: %v, %v", gone, err)
		}
		_, err = b.exec(ref, &plugin.ExecRequest{Argv: []string{"true"}}, "")
		wantError(t, err, plugin.KindNotFound)
		_, err = b.Inspect(t.Context(), ref)
		wantError(t, err, plugin.KindNotFound)
	})
}

// What is in a process list is seen by everyone on the machine.
func TestNoSecretInArguments(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		b := newBench(t, c)
		spec := newSpec(plugin.NetworkNone)
		spec.Env = map[string]string{"TOKEN": "s3cret-of-sandbox"}
		ref := b.create(spec)
		r, err := b.exec(ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", `cat; echo "$TOKEN $MORE"`}, Env: map[string]string{"MORE": "s3cret-of-exec"}}, "s3cret-of-stdin ")
		if err != nil || r.stdout != "s3cret-of-stdin s3cret-of-sandbox s3cret-of-exec\n" {
			t.Errorf("%+v, %v", r, err)
		}
		if err := b.WriteFile(t.Context(), ref, "file", 0o644, strings.NewReader("s3cret-of-file")); err != nil {
			t.Error(told(err))
		}
		for _, call := range b.double.Calls(t) {
			if text := strings.Join(append(call.Args, call.Env...), " "); strings.Contains(text, "s3cret") {
				t.Errorf("a secret is in the arguments or the environment of sbx %q", call.Args)
			}
		}
	})
}

func TestMemoryIsAlwaysGiven(t *testing.T) {
	b := newBench(t, sbxdouble.Config{}, "memory=3g")
	b.open()
	spec := newSpec(plugin.NetworkNone)
	spec.MemoryBytes, spec.CPUs = 1536<<20, 2
	b.create(spec)
	creates := b.called("create")
	var given [][]string
	for _, call := range creates {
		if at := slices.Index(call.Args, "--memory"); at > 0 {
			given = append(given, call.Args[at+1:at+4])
		}
	}
	if len(given) != 2 || given[0][0] != "3072m" || given[1][0] != "1536m" || given[1][1] != "--cpus" || given[1][2] != "2" {
		t.Errorf("memory and cpus: %q", given)
	}
	for _, bad := range []func(*plugin.SandboxSpec){
		func(s *plugin.SandboxSpec) { s.MemoryBytes = 100 << 20 },
		func(s *plugin.SandboxSpec) { s.CPUs = 1.5 },
	} {
		spec := newSpec(plugin.NetworkNone)
		bad(spec)
		_, err := b.Create(t.Context(), spec, &events{})
		wantError(t, err, plugin.KindRefused)
	}
}

func TestSandboxOutlivesTheDriver(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	b.sh(ref, "echo kept >/tmp/f")
	b.startDriver(b.double.Path)
	if got := b.sh(plugin.Ref{ID: ref.ID}, "cat /tmp/f"); got != "kept\n" {
		t.Errorf("%q", got)
	}
}

func TestCreateIsIdempotent(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	spec := newSpec(plugin.NetworkNone)
	b.create(spec)
	again, err := b.Create(t.Context(), spec, &events{})
	if err != nil || again.ID != spec.ID {
		t.Errorf("%+v, %v", again, err)
	}
	other := *spec
	other.RequestID = "another"
	_, err = b.Create(t.Context(), &other, &events{})
	wantError(t, err, plugin.KindConflict)
	if len(b.called("create", "--quiet")) != 1 {
		t.Error("sbx create was called twice")
	}
	if got := b.double.Sandboxes(t); len(got) != 1 {
		t.Errorf("the refused create changed what is there: %v", got)
	}
}

func TestProbing(t *testing.T) {
	b := newBench(t, sbxdouble.Config{Generation: sbxdouble.Gen045, Version: "1.7.3-rc1", Seed: allYes})
	b.open()
	if calls := b.called("create", "--quiet"); len(calls) != 1 || !slices.Contains(calls[0].Args, "--deny-network") {
		t.Errorf("an unknown newer version was not driven like the newest: %v", calls)
	}
	for _, call := range b.double.Calls(t) {
		first := call.Args[0]
		if first != "--no-input" && first != "version" && !slices.Contains(call.Args, "--help") {
			t.Errorf("--no-input is there and was not used: %q", call.Args)
		}
	}
	b.startDriver(b.double.Path)
	if _, err := b.List(t.Context(), plugin.ListRequest{}); err != nil {
		t.Error(err)
	}
	if n := len(b.called("version")); n != 1 {
		t.Errorf("sbx was probed %d times", n)
	}
}
