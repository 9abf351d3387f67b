//go:build linux

package opensandbox_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// A server that does not know the path answers 404 like one that does not know the sandbox.
func TestUnknownPathIsNotAMissingSandbox(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	for _, body := range []string{`{"detail":"Not Found"}`, "404 page not found", ""} {
		d.Set(func(k *osbdouble.Knobs) {
			k.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusNotFound)
				io.WriteString(w, body)
				return true
			}
		})
		for _, one := range []plugin.Ref{ref, {ID: ref.ID}} {
			gone, err := r.Destroy(t.Context(), one)
			if gone || err == nil {
				t.Errorf("%q: a living sandbox was called gone: %v, %v", body, gone, err)
			} else {
				wantKind(t, err, plugin.KindUnavailable, "endpoint")
			}
		}
		_, err := r.Inspect(t.Context(), ref)
		wantKind(t, err, plugin.KindUnavailable)
		_, err = r.tryExec(t.Context(), ref, sh("true"), nil)
		wantKind(t, err, plugin.KindUnavailable)
		_, err = r.List(t.Context(), plugin.ListRequest{})
		wantKind(t, err, plugin.KindUnavailable)
	}
	d.Set(func(k *osbdouble.Knobs) {
		k.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"detail":"Sandbox x not found"}`)
			return true
		}
	})
	if gone, err := r.Destroy(t.Context(), ref); !gone || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
}

// A daemon that takes a command and never speaks must not hold a create for ever.
func TestSilentDaemon(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.Execd.MuteCommands = true
	d := startDouble(t, knobs)
	_, err := newRig(t, d).Create(t.Context(), newSpec(func(s *plugin.SandboxSpec) { s.Workdir = "/work" }), &events{})
	if err == nil {
		t.Error("created without its working directory")
	}
	if ids := d.IDs(); len(ids) != 0 {
		t.Errorf("left: %v", ids)
	}
}

// Shells and JSON change some bytes without a word; such a request is refused.
func TestBytesThatCannotArrive(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	for name, req := range map[string]*plugin.ExecRequest{
		"argument":  {Argv: []string{"echo", "a\x00b"}},
		"value":     {Argv: []string{"env"}, Env: map[string]string{"A": "x\x00y"}},
		"directory": {Argv: []string{"pwd"}, Workdir: "/tm\x00p"},
	} {
		_, err := r.tryExec(t.Context(), ref, req, nil)
		if plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), "NUL") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if res := r.exec(t, ref, &plugin.ExecRequest{Argv: []string{"printf", "%s", "\xff\xfe"}}); res.stdout != "\xff\xfe" {
		t.Errorf("%q", res.stdout)
	}
	for name, env := range map[string]map[string]string{
		"NUL": {"A": "x\x00y"}, "not UTF-8": {"A": "x\xffy"}, "equals sign": {"A=B": "c"}, "empty name": {"": "c"},
	} {
		_, err := r.Create(t.Context(), newSpec(func(s *plugin.SandboxSpec) { s.Env = env }), &events{})
		if plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(d.IDs()); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
}

// The name of a signal becomes part of a shell text in the sandbox.
func TestSignalNameIsOnlyAName(t *testing.T) {
	t.Parallel()
	r := newRig(t, startDouble(t, healthy))
	ref := r.create(t)
	signals := make(chan string, 2)
	ready := &onWrite{w: io.Discard, do: func() { signals <- "CONT; touch /pwned"; signals <- "USR1" }}
	status, err := r.Exec(t.Context(), ref, sh("trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"),
		&plugin.ExecIO{Stdout: ready, Stderr: io.Discard, Signals: signals})
	if err != nil || status.Code != 9 {
		t.Errorf("%+v, %v", status, err)
	}
	if res := r.exec(t, ref, sh("test -e /pwned && echo yes; true")); res.stdout != "" {
		t.Error("the name of a signal was run")
	}
}

// States are an open set. One that nobody knows, or a pause, is not the end of a sandbox.
func TestUnknownStateIsNotTheEnd(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"Rebalancing", "Paused", "Unknown"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			knobs := healthy
			knobs.UnreadyFor = 300 * time.Millisecond
			knobs.Execd.CutAfter = 100_000
			knobs.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				id, found := strings.CutPrefix(r.URL.Path, "/v1/sandboxes/")
				if !found || r.Method != http.MethodGet || strings.Contains(id, "/") {
					return false
				}
				fmt.Fprintf(w, `{"id":%q,"status":{"state":%q},"createdAt":"2026-01-01T00:00:00Z"}`, id, state)
				return true
			}
			d := startDouble(t, knobs)
			r := newRig(t, d, withSetting("use_server_proxy", true))
			ref := r.create(t)
			_, err := r.tryExec(t.Context(), ref, sh("head -c 200000 /dev/zero; sleep 309"), nil)
			wantKind(t, err, plugin.KindIndeterminate, "lost")
			d.Set(func(k *osbdouble.Knobs) { k.DeadEndpoints = true })
			_, err = newRig(t, d).tryExec(t.Context(), ref, sh("true"), nil)
			if kind := plugin.KindOf(err); kind != plugin.KindUnavailable && kind != plugin.KindConflict {
				t.Errorf("%v", err)
			}
		})
	}
}

// A server that ignores the page number must not be asked for ever.
func TestListThatNeverEnds(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		io.WriteString(w, `{"items":[{"id":"a","status":{"state":"Running"}}],"pagination":{"page":1,"hasNextPage":true}}`)
		return true
	}
	_, err := newRig(t, startDouble(t, knobs)).List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, plugin.KindInternal, "repeats page")
}

// A create that the server calls failed may have made a sandbox all the same.
func TestFailedCreateIsLookedFor(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	d.Set(func(k *osbdouble.Knobs) {
		k.Intercept = func(w http.ResponseWriter, req *http.Request) bool {
			const inner = "X-Inner"
			if req.Method != http.MethodPost || req.URL.Path != "/v1/sandboxes" || req.Header.Get(inner) != "" {
				return false
			}
			again := req.Clone(req.Context())
			again.RequestURI, again.URL.Scheme, again.URL.Host = "", "http", d.Addr()
			again.Header.Set(inner, "1")
			resp, err := http.DefaultTransport.RoundTrip(again)
			if err != nil {
				t.Error(err)
				return false
			}
			resp.Body.Close()
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, `{"code":"GENERAL::UNKNOWN_ERROR","message":"broken"}`)
			return true
		}
	})
	_, err := r.Create(t.Context(), newSpec(), &events{})
	wantKind(t, err, plugin.KindInternal, "broken")
	if ids := d.IDs(); len(ids) != 0 {
		t.Errorf("left: %v", ids)
	}
}

// A deadline that neither the guest nor the driver could keep is no timeout: the command goes on when the sandbox does.
func TestDeadlineInAPausedSandbox(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	req := sh("echo up; sleep 311")
	req.Timeout = 5 * time.Second
	status, err := r.Exec(t.Context(), ref, req, &plugin.ExecIO{Stderr: io.Discard, Stdout: &onWrite{w: io.Discard, do: func() {
		if err := d.Pause(d.IDs()[0]); err != nil {
			t.Error(err)
		}
	}}})
	if err == nil {
		t.Fatalf("%+v", status)
	}
	wantKind(t, err, plugin.KindIndeterminate, "may still be running")
}
