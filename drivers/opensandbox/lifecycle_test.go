//go:build linux

package opensandbox_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	spec := newSpec(func(s *plugin.SandboxSpec) {
		s.Labels = map[string]string{"team": "blue", "example.com/stage": "dev"}
		s.CPUs, s.MemoryBytes, s.Workdir = 0.5, 512<<20, "/srv/app"
	})
	var ev events
	box, err := r.Create(t.Context(), spec, &ev)
	if err != nil {
		t.Fatal(err)
	}
	if len(ev.handles) != 1 || string(ev.handles[0]) != string(box.Handle) {
		t.Errorf("handles: %q and %q", ev.handles, box.Handle)
	}
	ref := plugin.Ref{ID: spec.ID, Handle: box.Handle}
	for name, got := range map[string]func() *plugin.Sandbox{
		"create": func() *plugin.Sandbox { return box },
		"inspect": func() *plugin.Sandbox {
			s, err := r.Inspect(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"list": func() *plugin.Sandbox {
			l, err := r.List(t.Context(), plugin.ListRequest{Owner: "owner1"})
			if err != nil || len(l.Sandboxes) != 1 {
				t.Fatalf("%+v, %v", l, err)
			}
			return l.Sandboxes[0]
		},
	} {
		s := got()
		if s.ID != spec.ID || s.Name != spec.Name || s.Owner != spec.Owner || s.State != plugin.StateRunning || s.Image != spec.Image {
			t.Errorf("%s: %+v", name, s)
		}
		if len(s.Labels) != 2 || s.Labels["team"] != "blue" || s.Labels["example.com/stage"] != "dev" {
			t.Errorf("%s: labels %v", name, s.Labels)
		}
		if s.ExpiresAt.Sub(spec.ExpiresAt).Abs() > time.Minute || s.Network.Mode != plugin.NetworkOpen {
			t.Errorf("%s: expires %s, network %v", name, s.ExpiresAt, s.Network)
		}
		if name != "list" && s.Workdir != "/srv/app" {
			t.Errorf("%s: workdir %q", name, s.Workdir)
		}
	}
	if l, err := r.List(t.Context(), plugin.ListRequest{Owner: "someone"}); err != nil || len(l.Sandboxes) != 0 {
		t.Errorf("another owner's: %+v, %v", l, err)
	}
	if res := r.exec(t, plugin.Ref{ID: spec.ID}, &plugin.ExecRequest{Argv: []string{"pwd"}}); res.stdout != "/srv/app\n" {
		t.Errorf("found by id alone: %+v", res)
	}
	for i, want := range []bool{false, true} {
		if gone, err := r.Destroy(t.Context(), ref); err != nil || gone != want {
			t.Errorf("destroy %d: %v, %v", i, gone, err)
		}
	}
	if gone, err := r.Destroy(t.Context(), plugin.Ref{ID: spec.ID}); err != nil || !gone {
		t.Errorf("destroy by id: %v, %v", gone, err)
	}
	_, err = r.Inspect(t.Context(), ref)
	wantKind(t, err, plugin.KindNotFound)
}

func TestDestroyAtOnce(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := r.Destroy(t.Context(), ref)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// A removal that keeps failing is told.
	ref = r.create(t)
	d.Set(func(k *osbdouble.Knobs) {
		k.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodDelete {
				return false
			}
			w.WriteHeader(http.StatusInternalServerError)
			w.Write([]byte(`{"code":"DOCKER::SANDBOX_DELETE_FAILED","message":"device busy"}`))
			return true
		}
	})
	_, err := r.Destroy(t.Context(), ref)
	wantKind(t, err, plugin.KindInternal, "device busy")
}

func TestCreateRefusesBeforehand(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	for name, c := range map[string]struct {
		change func(*plugin.SandboxSpec)
		kind   plugin.Kind
		option string
	}{
		"short ttl":     {func(s *plugin.SandboxSpec) { s.ExpiresAt = s.CreatedAt.Add(30 * time.Second) }, plugin.KindRefused, "--ttl"},
		"label value":   {func(s *plugin.SandboxSpec) { s.Labels = map[string]string{"a": "b c"} }, plugin.KindRefused, "--label"},
		"label key":     {func(s *plugin.SandboxSpec) { s.Labels = map[string]string{"-a": "b"} }, plugin.KindRefused, "--label"},
		"label length":  {func(s *plugin.SandboxSpec) { s.Labels = map[string]string{"a": strings.Repeat("x", 64)} }, plugin.KindRefused, "--label"},
		"reserved":      {func(s *plugin.SandboxSpec) { s.Labels = map[string]string{"opensandbox.io/x": "b"} }, plugin.KindRefused, "--label"},
		"image's label": {func(s *plugin.SandboxSpec) { s.Labels = map[string]string{"maintainer": "b"} }, plugin.KindRefused, "--label"},
		"memory":        {func(s *plugin.SandboxSpec) { s.MemoryBytes = 1000 }, plugin.KindRefused, "--memory"},
		"cpus":          {func(s *plugin.SandboxSpec) { s.CPUs = 0.0001 }, plugin.KindInvalid, ""},
		"gpu":           {func(s *plugin.SandboxSpec) { s.GPU = "a100" }, plugin.KindRefused, "--gpu"},
		"no image":      {func(s *plugin.SandboxSpec) { s.Image = "" }, plugin.KindInvalid, ""},
		"workdir":       {func(s *plugin.SandboxSpec) { s.Workdir = "relative" }, plugin.KindInvalid, ""},
		"execd's env":   {func(s *plugin.SandboxSpec) { s.Env = map[string]string{"EXECD_LOG_FILE": "x"} }, plugin.KindInvalid, ""},
		"option":        {func(s *plugin.SandboxSpec) { s.Options = map[string]string{"accept-names-only": "yes"} }, plugin.KindInvalid, ""},
		"empty list":    {func(s *plugin.SandboxSpec) { s.Network.Mode = plugin.NetworkAllow }, plugin.KindInvalid, ""},
		"url":           {allow("https://pkg.example.net"), plugin.KindRefused, "--allow-host"},
		"port":          {allow("pkg.example.net:443"), plugin.KindRefused, "--allow-host"},
		"single label":  {allow("localhost"), plugin.KindRefused, "--allow-host"},
		"star":          {allow("*"), plugin.KindRefused, "--allow-host"},
		"address":       {allow("10.0.0.1"), plugin.KindRefused, "--allow-host"},
	} {
		_, err := r.Create(t.Context(), newSpec(c.change), &events{})
		if e := wantKind(t, err, c.kind); e.Option != c.option {
			t.Errorf("%s: option %q", name, e.Option)
		}
	}
	if reqs := d.Requests(); len(reqs) != 0 {
		t.Errorf("the server was asked: %v", reqs)
	}
}

func allow(hosts ...string) func(*plugin.SandboxSpec) {
	return func(s *plugin.SandboxSpec) { s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: hosts} }
}

func TestCreateIsIdempotent(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	spec := newSpec()
	first, err := r.Create(t.Context(), spec, &events{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.Create(t.Context(), spec, &events{})
	if err != nil || string(first.Handle) != string(second.Handle) || len(d.IDs()) != 1 {
		t.Errorf("%s and %v, %v; %d sandboxes", first.Handle, second, err, len(d.IDs()))
	}
	spec.RequestID = "another"
	_, err = r.Create(t.Context(), spec, &events{})
	wantKind(t, err, plugin.KindConflict, spec.ID)
}

func TestCreateWithoutExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t, func(s *plugin.SandboxSpec) { s.ExpiresAt = time.Time{} })
	s, err := r.Inspect(t.Context(), ref)
	if err != nil || !s.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = r.Renew(t.Context(), ref, time.Now().Add(time.Hour))
	wantKind(t, err, plugin.KindRefused, "without an expiry")
}

func TestRenew(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			knobs := healthy
			knobs.ClockSkew = skew
			d := startDouble(t, knobs)
			r := newRig(t, d)
			ref := r.create(t)
			want := time.Now().Add(3 * time.Hour)
			got, err := r.Renew(t.Context(), ref, want)
			if err != nil || got.Sub(want).Abs() > time.Minute {
				t.Fatalf("%s, want %s: %v", got, want, err)
			}
			s, err := r.Inspect(t.Context(), ref)
			if err != nil || s.ExpiresAt.Sub(want).Abs() > time.Minute {
				t.Errorf("%+v, %v", s, err)
			}
			_, err = r.Renew(t.Context(), ref, time.Time{})
			wantKind(t, err, plugin.KindRefused)
			// A restarted server has forgotten the renewal; the driver tells what is.
			d.ServerDown()
			if err := d.ServerUp(); err != nil {
				t.Fatal(err)
			}
			s, err = r.Inspect(t.Context(), ref)
			if err != nil || time.Until(s.ExpiresAt) > time.Hour+time.Minute {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	knobs := healthy
	d := startDouble(t, knobs)
	r := newRig(t, d)
	var want []string
	for range 45 {
		spec := newSpec()
		want = append(want, spec.ID)
		if _, err := r.Create(t.Context(), spec, &events{}); err != nil {
			t.Fatal(err)
		}
	}
	d.Set(func(k *osbdouble.Knobs) { k.MaxPageSize = 10 })
	l, err := r.List(t.Context(), plugin.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range l.Sandboxes {
		got = append(got, s.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d of %d", len(got), len(want))
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	id := d.IDs()[0]
	if err := d.Pause(id); err != nil {
		t.Fatal(err)
	}
	s, err := r.Inspect(t.Context(), ref)
	if err != nil || s.State != plugin.StatePaused {
		t.Errorf("%+v, %v", s, err)
	}
	if gone, err := r.Destroy(t.Context(), ref); gone || err != nil {
		t.Errorf("destroy a paused sandbox: %v, %v", gone, err)
	}
	ref = r.create(t)
	// The entrypoint's end is the sandbox's.
	_, _ = r.tryExec(t.Context(), ref, sh("kill -9 $(pidof tail)"), nil)
	// The command's result does not wait for the container's end.
	for end := time.Now().Add(time.Minute); ; {
		s, err = r.Inspect(t.Context(), ref)
		if err != nil || s.State != plugin.StateRunning || time.Now().After(end) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || s.State != plugin.StateFailed || s.StateReason == "" {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = r.tryExec(t.Context(), ref, sh("true"), nil)
	wantKind(t, err, plugin.KindNotFound, "has ended", "137")
}

func TestForeignSandboxes(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	other := newRig(t, d)
	_, err := other.tryExec(t.Context(), ref, sh("true"), nil)
	wantKind(t, err, plugin.KindAuth, "state directory")
	for _, handle := range []string{"x", "{}", `{"id":"../x"}`, `{"id":""}`, `{"id":"a/b"}`} {
		_, err := r.Inspect(t.Context(), plugin.Ref{ID: ref.ID, Handle: []byte(handle)})
		wantKind(t, err, plugin.KindInvalid)
	}
	_, err = r.Inspect(t.Context(), plugin.Ref{ID: ref.ID, Handle: []byte(`{"id":"9b9b9b9b-0000-4000-8000-000000000000"}`)})
	wantKind(t, err, plugin.KindNotFound)
	if gone, err := other.Destroy(t.Context(), ref); gone || err != nil {
		t.Errorf("gc of another's sandbox: %v, %v", gone, err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	show := func(checks []plugin.Check) string {
		var b strings.Builder
		for _, c := range checks {
			fmt.Fprintf(&b, "%s %s %s %s\n", c.Name, c.Status, c.Detail, c.Fix)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		rig  *rig
		want []string
	}{
		"right key":   {newRig(t, d), []string{"server ok", "API key ok"}},
		"wrong key":   {newRig(t, d, withKey("nope")), []string{"server ok", "API key failed", "OPEN_SANDBOX_API_KEY"}},
		"no key":      {newRig(t, d, withKey("")), []string{"API key failed", "set OPEN_SANDBOX_API_KEY"}},
		"open server": {newRig(t, startDouble(t, osbdouble.Knobs{}), withKey("")), []string{"API key warning", "server.api_key"}},
		"no server":   {newRig(t, d, withSetting("endpoint", "http://127.0.0.1:1")), []string{"server failed", "127.0.0.1:1"}},
	} {
		checks, err := c.rig.CheckHealth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if got := show(checks); !strings.Contains(got, w) {
				t.Errorf("%s: no %q in %q", name, w, got)
			}
		}
	}
}
