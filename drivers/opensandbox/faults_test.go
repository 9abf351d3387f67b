//go:build linux

package opensandbox_test

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestConfigurationMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings string
		env      map[string]string
		kind     plugin.Kind
		mentions string
	}{
		"no endpoint":  {`{}`, nil, plugin.KindAuth, "drivers.opensandbox.endpoint"},
		"no settings":  {``, nil, plugin.KindAuth, "OPEN_SANDBOX_DOMAIN"},
		"no scheme":    {`{"endpoint":"localhost:8080"}`, nil, plugin.KindInvalid, "https://"},
		"credentials":  {`{"endpoint":"http://me:pw@host"}`, nil, plugin.KindInvalid, "endpoint"},
		"unknown key":  {`{"endpoint":"http://h","api_key":"x"}`, nil, plugin.KindInvalid, "api_key"},
		"not JSON":     {`[`, nil, plugin.KindInvalid, "configuration"},
		"timeout":      {`{"endpoint":"http://h","create_timeout":"soon"}`, nil, plugin.KindInvalid, "create_timeout"},
		"missing CA":   {`{"endpoint":"https://h","ca_file":"/missing.pem"}`, nil, plugin.KindInvalid, "ca_file"},
		"no PEM":       {`{"endpoint":"https://h","ca_file":"/etc/hostname"}`, nil, plugin.KindInvalid, "ca_file"},
		"key and tail": {`{"endpoint":"https://h"}`, map[string]string{"OPEN_SANDBOX_API_KEY": "k\n"}, plugin.KindAuth, "OPEN_SANDBOX_API_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			client := startDriver(t)
			_, err := client.Configure(t.Context(), plugin.Config{Settings: []byte(c.settings), Environment: c.env, StateDir: t.TempDir()})
			e := wantKind(t, err, c.kind, c.mentions)
			if strings.Contains(e.Message, "pw") {
				t.Errorf("tells a secret: %s", e.Message)
			}
		})
	}
}

func TestEndpointFromTheEnvironment(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	client := startDriver(t)
	_, err := client.Configure(t.Context(), plugin.Config{StateDir: t.TempDir(), Environment: map[string]string{
		"OPEN_SANDBOX_DOMAIN": d.Addr(), "OPEN_SANDBOX_API_KEY": "test-key",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.List(t.Context(), plugin.ListRequest{}); err != nil {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	_, err := newRig(t, d, withKey("")).Create(t.Context(), newSpec(), &events{})
	wantKind(t, err, plugin.KindAuth, "set OPEN_SANDBOX_API_KEY")
	_, err = newRig(t, d, withKey("wrong")).Create(t.Context(), newSpec(), &events{})
	wantKind(t, err, plugin.KindAuth, "OPEN_SANDBOX_API_KEY is not the server's")
	var ev events
	if _, err := newRig(t, startDouble(t, osbdouble.Knobs{}), withKey("")).Create(t.Context(), newSpec(), &ev); err != nil {
		t.Fatal(err)
	}
	if len(ev.warnings) != 1 || !strings.Contains(ev.warnings[0], "without an API key") {
		t.Errorf("warnings: %q", ev.warnings)
	}
}

// The key goes to the server and nowhere else.
func TestKeyStaysWithTheServer(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	var leaked atomic.Int32
	spy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("OPEN-SANDBOX-API-KEY") != "" {
			leaked.Add(1)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer spy.Close()
	spyHost := strings.TrimPrefix(spy.URL, "http://")
	for _, proxied := range []bool{false, true} {
		d.Set(func(k *osbdouble.Knobs) {
			k.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/endpoints/") {
					return false
				}
				w.Write([]byte(`{"endpoint":"` + spyHost + `/x"}`))
				return true
			}
		})
		r := newRig(t, d, withSetting("use_server_proxy", proxied))
		_, err := r.Create(t.Context(), newSpec(none), &events{})
		if err == nil {
			t.Error("created with a policy nobody told")
		}
	}
	d.Set(func(k *osbdouble.Knobs) {
		k.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, spy.URL, http.StatusTemporaryRedirect)
			return true
		}
	})
	_, err := newRig(t, d).List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, plugin.KindInternal, "redirects", spyHost)
	if n := leaked.Load(); n != 0 {
		t.Errorf("the key was sent %d times", n)
	}
}

func TestServerDown(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	d.ServerDown()
	_, err := r.Create(t.Context(), newSpec(), &events{})
	wantKind(t, err, plugin.KindUnavailable, d.Addr(), "check the address")
	_, err = r.tryExec(t.Context(), ref, sh("true"), nil)
	wantKind(t, err, plugin.KindUnavailable, d.Addr())
	_, err = r.List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, plugin.KindUnavailable, d.Addr())
	_, err = r.Destroy(t.Context(), ref)
	wantKind(t, err, plugin.KindUnavailable, d.Addr())
	if err := d.ServerUp(); err != nil {
		t.Fatal(err)
	}
	if res := r.exec(t, ref, sh("echo back")); res.stdout != "back\n" {
		t.Errorf("%+v", res)
	}
}

func TestServerRestartsDuringExec(t *testing.T) {
	t.Parallel()
	for _, proxied := range []bool{false, true} {
		d := startDouble(t, healthy)
		r := newRig(t, d, withSetting("use_server_proxy", proxied))
		ref := r.create(t)
		var out strings.Builder
		first := &onWrite{w: &out, do: func() {
			d.ServerDown()
			if err := d.ServerUp(); err != nil {
				t.Error(err)
			}
		}}
		_, err := r.Exec(t.Context(), ref, sh("echo one; sleep 0.3; echo two"), &plugin.ExecIO{Stdout: first, Stderr: &out})
		switch {
		case !proxied && (err != nil || out.String() != "one\ntwo\n"):
			t.Errorf("a direct connection does not need the server: %q, %v", out.String(), err)
		case proxied:
			wantKind(t, err, plugin.KindIndeterminate, "lost")
		}
	}
}

func TestServerRestartsDuringCreate(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.PullDelay = 20 * time.Second
	d := startDouble(t, knobs)
	r := newRig(t, d)
	done := make(chan error, 1)
	go func() {
		_, err := r.Create(t.Context(), newSpec(), &events{})
		done <- err
	}()
	awaitRequest(t, d, "POST /v1/sandboxes")
	d.ServerDown()
	if err := d.ServerUp(); err != nil {
		t.Fatal(err)
	}
	e := wantKind(t, <-done, plugin.KindIndeterminate, "did not say", "sandboxctl gc")
	if !e.LeftBehind || len(d.IDs()) != 0 {
		t.Errorf("left behind: %v, %v", e.LeftBehind, d.IDs())
	}
}

func awaitRequest(t *testing.T, d *osbdouble.Double, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, r := range d.Requests() {
			if r == want {
				return
			}
		}
	}
	t.Fatalf("no %s among %v", want, d.Requests())
}

// A create whose client gave up goes on at the server; what it made is found by its label and removed.
func TestOrphanIsRemoved(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]struct {
		options []option
		limit   time.Duration
		kind    plugin.Kind
	}{
		"client's timeout": {[]option{withSetting("create_timeout", "300ms")}, time.Minute, plugin.KindIndeterminate},
		"cancelled":        {nil, 300 * time.Millisecond, plugin.KindCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			knobs := healthy
			knobs.PullDelay = 800 * time.Millisecond
			d := startDouble(t, knobs)
			r := newRig(t, d, give.options...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(give.limit, cancel)
			_, err := r.Create(ctx, newSpec(), &events{})
			if plugin.KindOf(err) != give.kind {
				t.Errorf("%v", err)
			}
			var typed *plugin.Error
			told := errors.As(err, &typed) && typed.LeftBehind // where the server took too long to be waited for
			removed := slices.ContainsFunc(d.Requests(), func(request string) bool { return strings.HasPrefix(request, "DELETE ") })
			if ids := d.IDs(); !told && (len(ids) != 0 || !removed) {
				t.Errorf("left: %v, removed: %v", ids, removed)
			}
		})
	}
}

func TestImageCannotBePulled(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	_, err := newRig(t, d).Create(t.Context(), newSpec(func(s *plugin.SandboxSpec) { s.Image = "no/such:image" }), &events{})
	wantKind(t, err, plugin.KindInvalid, "no/such:image", "pull")
}

func TestServerLimits(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.MaxTimeout = 30 * time.Minute
	d := startDouble(t, knobs)
	for _, wrapped := range []bool{false, true} {
		d.Set(func(k *osbdouble.Knobs) { k.WrapErrors = wrapped })
		_, err := newRig(t, d).Create(t.Context(), newSpec(), &events{})
		if e := wantKind(t, err, plugin.KindRefused, "1800"); e.Option != "--ttl" {
			t.Errorf("%+v", e)
		}
	}
}

func TestStrictServer(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.UnknownFields = true
	r := newRig(t, startDouble(t, knobs))
	r.create(t, func(s *plugin.SandboxSpec) { s.CPUs, s.MemoryBytes, s.GPU = 1.5, 1<<30, "1" })
}

func TestReadyAWhileAfterRunning(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.UnreadyFor = 400 * time.Millisecond
	r := newRig(t, startDouble(t, knobs), withSetting("use_server_proxy", true))
	r.create(t, none)
}

func TestEndpointUnreachable(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	ref := r.create(t)
	d.Set(func(k *osbdouble.Knobs) { k.DeadEndpoints = true })
	_, err := r.tryExec(t.Context(), ref, sh("true"), nil)
	wantKind(t, err, plugin.KindUnavailable, "127.0.0.1:1", "use_server_proxy")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	target, err := url.Parse(d.URL())
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(target))
	defer front.Close()
	_, err = newRig(t, d, withSetting("endpoint", front.URL)).List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, plugin.KindUnavailable, "ca_file")

	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newRig(t, d, withSetting("endpoint", front.URL), withSetting("ca_file", ca)).List(t.Context(), plugin.ListRequest{}); err != nil {
		t.Error(err)
	}
	wrongName := strings.Replace(front.URL, "127.0.0.1", "localhost", 1)
	_, err = newRig(t, d, withSetting("endpoint", wrongName), withSetting("ca_file", ca)).List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, plugin.KindUnavailable, "certificate")
	_, err = newRig(t, d, withSetting("endpoint", "https://"+d.Addr())).List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, plugin.KindUnavailable, "http://")
	_, err = newRig(t, d, withSetting("endpoint", "http://"+strings.TrimPrefix(front.URL, "https://"))).List(t.Context(), plugin.ListRequest{})
	if err == nil {
		t.Error("plain HTTP to a TLS port worked")
	}
}

// Something else listens where the server should be.
func TestNotAServer(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	for name, handler := range map[string]http.HandlerFunc{
		"a web page": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>hello</html>")) },
		"404 page":   func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"cut answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("{"))
		},
	} {
		srv := httptest.NewServer(handler)
		_, err := newRig(t, d, withSetting("endpoint", srv.URL)).List(t.Context(), plugin.ListRequest{})
		if err == nil {
			t.Errorf("%s: an empty list", name)
		}
		srv.Close()
	}
}

// Reads are repeated, and the wait that a server asks for is kept.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	d := startDouble(t, healthy)
	r := newRig(t, d)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable} {
		var calls atomic.Int32
		d.Set(func(k *osbdouble.Knobs) {
			k.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				if calls.Add(1) > 1 {
					return false
				}
				w.WriteHeader(status)
				return true
			}
		})
		if _, err := r.List(t.Context(), plugin.ListRequest{}); err != nil {
			t.Errorf("%d: %v", status, err)
		}
		var posts atomic.Int32
		d.Set(func(k *osbdouble.Knobs) {
			k.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					posts.Add(1)
					w.WriteHeader(status)
				}
				return r.Method == http.MethodPost
			}
		})
		if _, err := r.Create(t.Context(), newSpec(), &events{}); err == nil || posts.Load() != 1 {
			t.Errorf("%d: create was sent %d times: %v", status, posts.Load(), err)
		}
		d.Set(func(k *osbdouble.Knobs) { k.Intercept = nil })
	}
}

// A listener that accepts and says nothing must not hold a caller for ever.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := startDouble(t, healthy)
	r := newRig(t, d, withSetting("endpoint", "http://"+ln.Addr().String()))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := r.List(ctx, plugin.ListRequest{}); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}
