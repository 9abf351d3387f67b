//go:build linux

package modal_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"

	"github.com/sandboxctl/sandboxctl/drivers/modal/internal/modaldouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) listed(t *testing.T) map[string]*plugin.Sandbox {
	t.Helper()
	list, err := b.List(t.Context(), plugin.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Warnings) > 0 {
		t.Errorf("warnings: %q", list.Warnings)
	}
	found := make(map[string]*plugin.Sandbox)
	for _, sandbox := range list.Sandboxes {
		found[sandbox.ID] = sandbox
	}
	return found
}

func TestList(t *testing.T) {
	t.Parallel()
	for _, bare := range []bool{false, true} {
		b := newSerialBench(t, setup{})
		b.double.Configure(func(behaviour *modaldouble.Behaviour) {
			behaviour.BareLists = bare
			behaviour.PageSize = 2
		})
		if got := b.listed(t); len(got) != 0 {
			t.Errorf("without an app: %v", got)
		}
		refs := make([]plugin.Ref, 0, 5)
		for range 5 {
			refs = append(refs, b.create(t, func(s *plugin.SandboxSpec) { s.Labels = map[string]string{"team": "blue"} }))
		}
		got := b.listed(t)
		if len(got) != 5 {
			t.Fatalf("%d are listed, want 5", len(got))
		}
		row := got[refs[2].ID]
		if row == nil || row.Owner != "owner-1" || row.Labels["team"] != "blue" || len(row.Labels) != 1 || row.ExpiresAt.IsZero() || time.Since(row.CreatedAt) > 10*time.Minute {
			t.Errorf("row: %+v", row)
		}
		if calls := b.double.Calls("SandboxTagsGetV2"); bare != (calls > 0) {
			t.Errorf("tags were asked for %d times with bare=%v", calls, bare)
		}
		mine, err := b.Client.List(t.Context(), plugin.ListRequest{Owner: "someone else"})
		if err != nil || len(mine.Sandboxes) != 0 {
			t.Errorf("another owner's list: %+v, %v", mine, err)
		}
		// A handle from a list works like one from a create.
		if got := b.shell(t, plugin.Ref{ID: row.ID, Handle: row.Handle}, "echo hi"); got.stdout != "hi\n" {
			t.Errorf("exec by a listed handle: %+v", got)
		}
	}
}

func TestDestroyedIsGoneAtOnceAlthoughModalLags(t *testing.T) {
	b := newBench(t)
	b.double.Configure(func(behaviour *modaldouble.Behaviour) {
		behaviour.PollLag, behaviour.ListLag, behaviour.NameLag = time.Hour, time.Hour, time.Hour
	})
	ref := b.create(t, nil)
	begin := time.Now()
	if gone, err := b.Destroy(t.Context(), ref); err != nil || gone {
		t.Errorf("destroy: %v, %v", gone, err)
	}
	if time.Since(begin) > time.Minute {
		t.Errorf("destroy took %v", time.Since(begin))
	}
	if got := b.listed(t); len(got) != 0 {
		t.Errorf("still listed: %v", got)
	}
	_, err := b.Inspect(t.Context(), ref)
	wantKind(t, err, plugin.KindNotFound)
	_, err = b.try(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}}, nil)
	wantKind(t, err, plugin.KindNotFound)
	_, err = b.Stat(t.Context(), ref, "/tmp", false)
	wantKind(t, err, plugin.KindNotFound)
	if gone, err := b.Destroy(t.Context(), ref); err != nil || !gone {
		t.Errorf("second destroy: %v, %v", gone, err)
	}
}

func TestSandboxThatEndedByItselfIsGone(t *testing.T) {
	b := newBench(t)
	b.double.Configure(func(behaviour *modaldouble.Behaviour) { behaviour.ListLag = time.Hour })
	ref := b.create(t, nil)
	if err := b.double.EndSandbox(b.double.Sandboxes()[0].ID, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT); err != nil {
		t.Fatal(err)
	}
	_, err := b.Inspect(t.Context(), ref)
	wantKind(t, err, plugin.KindNotFound)
	_, err = b.try(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}}, nil)
	wantKind(t, err, plugin.KindNotFound)
	err = b.ReadFile(t.Context(), ref, "/etc/passwd", 0, &lockedBuffer{})
	wantKind(t, err, plugin.KindNotFound)
	_, err = b.ReadDir(t.Context(), ref, "/etc")
	wantKind(t, err, plugin.KindNotFound)
	if gone, err := b.Destroy(t.Context(), ref); err != nil || !gone {
		t.Errorf("destroy: %v, %v", gone, err)
	}
}

func TestSandboxIsFoundWithoutItsHandle(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, func(s *plugin.SandboxSpec) { s.Workdir = "/srv" })
	lost := plugin.Ref{ID: ref.ID}
	if got := b.run(t, lost, &plugin.ExecRequest{Argv: []string{"pwd"}}); got.stdout != "/srv\n" {
		t.Errorf("exec: %+v", got)
	}
	if gone, err := b.Destroy(t.Context(), lost); err != nil || gone || b.double.Running() != 0 {
		t.Errorf("destroy: %v, %v", gone, err)
	}
	if gone, err := b.Destroy(t.Context(), plugin.Ref{ID: "sb-neverexisted"}); err != nil || !gone {
		t.Errorf("destroy of an unknown one: %v, %v", gone, err)
	}
	for _, handle := range []string{"None", "{}", `{"modal_id":"../x"}`} {
		_, err := b.try(t.Context(), plugin.Ref{ID: ref.ID, Handle: []byte(handle)}, &plugin.ExecRequest{Argv: []string{"true"}}, nil)
		wantKind(t, err, plugin.KindNotFound)
	}
}

func TestDestroyErrorsAreReported(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	b.double.Inject(modaldouble.Fault{Method: "SandboxTerminateV2", Code: codes.Unavailable, Message: "overloaded"})
	_, err := b.Destroy(t.Context(), ref)
	wantKind(t, err, plugin.KindUnavailable)
	if got := b.listed(t); len(got) != 1 {
		t.Errorf("a sandbox that could not be destroyed is not listed: %v", got)
	}
}

func TestCredentials(t *testing.T) {
	noToken := map[string]string{"MODAL_TOKEN_ID": "", "MODAL_TOKEN_SECRET": ""}
	file := func(content string) map[string]string {
		path := t.TempDir() + "/modal.toml"
		writeFile(t, path, []byte(content))
		return map[string]string{"MODAL_TOKEN_ID": "", "MODAL_TOKEN_SECRET": "", "MODAL_CONFIG_PATH": path}
	}
	right := "token_id = 'ak-double'\ntoken_secret = 'as-double'\n"
	elsewhere := func(address string) map[string]string {
		env := file("[a]\nactive = true\nserver_url = '" + address + "'\n" + right)
		env["MODAL_SERVER_URL"] = ""
		return env
	}
	for _, test := range []struct {
		name   string
		env    map[string]string
		kind   plugin.Kind // "" when it works
		called bool
	}{
		{"none", noToken, plugin.KindAuth, false},
		{"half", map[string]string{"MODAL_TOKEN_SECRET": ""}, plugin.KindAuth, false},
		{"wrong", map[string]string{"MODAL_TOKEN_SECRET": "as-wrong"}, plugin.KindAuth, true},
		{"active profile", file("[a]\nactive = true\n" + right + "[b]\ntoken_id = 'x'\n"), "", true},
		{"no active profile", file("[a]\n" + right), plugin.KindAuth, false},
		{"two active profiles", file("[a]\nactive = true\n" + right + "[b]\nactive = true\n" + right), plugin.KindAuth, false},
		{"unencrypted address", elsewhere("http://modal.example.com"), plugin.KindInvalid, false},
		{"impossible address", elsewhere("modal.example.com"), plugin.KindInvalid, false},
		{"broken file", file("[a\n" + right), plugin.KindAuth, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBenchWith(t, setup{env: test.env})
			_, err := b.List(t.Context(), plugin.ListRequest{})
			wantKind(t, err, test.kind)
			if called := b.double.TotalCalls() > 0; called != test.called {
				t.Errorf("Modal was called: %v, want %v", called, test.called)
			}
			if err != nil && strings.Contains(err.Error(), "as-") {
				t.Errorf("the error shows a secret: %v", err)
			}
			failed := false
			for _, check := range must(b.CheckHealth(t.Context())) {
				if check.Status == plugin.CheckFailed {
					failed = true
					if check.Fix == "" || check.Name == "credentials" && strings.Contains(check.Fix, "network") || strings.Contains(check.Detail, "as-") {
						t.Errorf("check: %+v", check)
					}
				}
			}
			if failed != (test.kind != "") {
				t.Errorf("health says failed=%v", failed)
			}
		})
	}
}

// TestAddressOfTheProfile has the one slash at its end with which the SDK fails.
func TestAddressOfTheProfile(t *testing.T) {
	double := newBench(t).double
	path := t.TempDir() + "/modal.toml"
	writeFile(t, path, fmt.Appendf(nil, "[a]\nactive = true\nserver_url = '%s/'\ntoken_id = 'ak-double'\ntoken_secret = 'as-double'\n", double.URL()))
	b := startDriver(t, setup{}, map[string]string{"MODAL_CONFIG_PATH": path})
	_, err := b.List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, "")
	if double.TotalCalls() == 0 {
		t.Error("the profile's address was not called")
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestUnreachableServiceIsToldQuickly(t *testing.T) {
	b := newBenchWith(t, setup{env: map[string]string{"MODAL_SERVER_URL": "http://127.0.0.1:1/"}})
	_, err := b.List(t.Context(), plugin.ListRequest{})
	wantKind(t, err, plugin.KindUnavailable)
}

func TestSilentServiceIsGivenUp(t *testing.T) {
	b := newBench(t)
	b.double.Inject(modaldouble.Fault{Method: "AppGetOrCreate", Delay: time.Hour})
	begin := time.Now()
	checks := must(b.CheckHealth(t.Context()))
	if checks[len(checks)-1].Status != plugin.CheckFailed || time.Since(begin) > time.Minute {
		t.Errorf("got %+v after %v", checks, time.Since(begin))
	}
}

func TestSettings(t *testing.T) {
	b := newBenchWith(t, setup{settings: map[string]string{"app": "my-app", "host_match": "sni"}})
	ref := b.create(t, func(s *plugin.SandboxSpec) {
		s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"pkg.example.net"}}
	})
	if _, err := b.Inspect(t.Context(), ref); err != nil {
		t.Error(err)
	}
	for _, settings := range []string{`{"ap":"x"}`, `{"endpoint":"api.modal.com"}`, `{"endpoint":"http://modal.example.com"}`,
		`{"endpoint":"https://me:password@modal.example.com"}`, `{"endpoint":"https://modal.example.com?x=y"}`, `{"host_match":"dns"}`, `[`} {
		_, err := b.Configure(t.Context(), plugin.Config{Settings: []byte(settings), StateDir: t.TempDir()})
		wantKind(t, err, plugin.KindInvalid)
		if err != nil && strings.Contains(err.Error(), "password") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}
