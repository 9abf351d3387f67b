//go:build linux

package opensandbox_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/conformance/conformancetest"
)

// realImage is made by testing/guest_image.sh.
const realImage = "sandboxctl-test/guest:1"

// realServer is the address of a real lifecycle server that testing/test-opensandbox.sh has started.
func realServer(t *testing.T) string {
	t.Helper()
	address := os.Getenv("OPENSANDBOX_TEST_SERVER")
	if address == "" {
		t.Skip("no real OpenSandbox server; testing/test-opensandbox.sh starts one")
	}
	return address
}

func TestRealServer(t *testing.T) {
	address := realServer(t)
	for _, proxied := range []bool{false, true} {
		client, _ := startDriverProcess(t)
		if _, err := client.Configure(t.Context(), configFor(t, address, withSetting("use_server_proxy", proxied))); err != nil {
			t.Fatal(err)
		}
		r := &rig{Client: client}
		spec := newSpec(none, func(s *plugin.SandboxSpec) {
			s.Image, s.Workdir, s.MemoryBytes = realImage, "/srv/app", 64<<20
			s.Labels, s.Env = map[string]string{"team": "blue"}, map[string]string{"A": "it's"}
		})
		box, err := r.Create(t.Context(), spec, &events{})
		if err != nil {
			t.Fatal(err)
		}
		ref := plugin.Ref{ID: spec.ID, Handle: box.Handle}
		t.Cleanup(func() { _, _ = r.Destroy(t.Context(), ref) })
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		res, err := r.tryExec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "cat; printf %s \"$A\" >&2; exit 7"}, Stdin: true}, bytes.NewReader(all))
		if err != nil || res.stdout != string(all) || res.stderr != "it's" || res.Code != 7 {
			t.Errorf("%+v, %v", res, err)
		}
		if res := r.exec(t, ref, sh("pwd; env | grep -c EXECD")); res.stdout != "/srv/app\n0\n" {
			t.Errorf("%+v", res)
		}
		s, err := r.Inspect(t.Context(), ref)
		if err != nil || s.State != plugin.StateRunning || s.Network.Mode != plugin.NetworkNone || s.Labels["team"] != "blue" || s.Image != realImage {
			t.Errorf("%+v, %v", s, err)
		}
		want := time.Now().Add(2 * time.Hour)
		if got, err := r.Renew(t.Context(), ref, want); err != nil || got.Sub(want).Abs() > 4*time.Second {
			t.Errorf("renewed to %s: %v", got, err)
		}
		l, err := r.List(t.Context(), plugin.ListRequest{Owner: "owner1"})
		if err != nil || !slices.ContainsFunc(l.Sandboxes, func(s *plugin.Sandbox) bool { return s.ID == spec.ID && s.ExpiresAt.Sub(want).Abs() < 4*time.Second }) {
			t.Errorf("%+v, %v", l, err)
		}
		for i, want := range []bool{false, true} {
			if gone, err := r.Destroy(t.Context(), ref); err != nil || gone != want {
				t.Errorf("destroy %d: %v, %v", i, gone, err)
			}
		}
		_, err = r.Create(t.Context(), newSpec(func(s *plugin.SandboxSpec) { s.Image = "sandboxctl-test/missing:1" }), &events{})
		wantKind(t, err, plugin.KindInvalid, "sandboxctl-test/missing:1")
		_, err = r.tryExec(t.Context(), ref, sh("true"), nil)
		wantKind(t, err, plugin.KindNotFound)
	}
	if out, err := exec.Command("docker", "ps", "-aq", "--filter", "label=created-by=sandboxctl").CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Errorf("containers left: %s, %v", out, err)
	}
}

func TestRealServerConformance(t *testing.T) {
	address := realServer(t)
	settings, err := json.Marshal(map[string]string{"endpoint": address})
	if err != nil {
		t.Fatal(err)
	}
	target := conformance.Binary(conformance.BinaryOptions{
		Name: "opensandbox", Path: buildDriver(t), StateDir: t.TempDir(), Settings: settings,
		Environ: append(os.Environ(), "OPEN_SANDBOX_API_KEY=test-key"),
	})
	target.Image = realImage
	target.CheckedAgainst = strings.TrimSpace("opensandbox-server "+os.Getenv("OPENSANDBOX_TEST_SERVER_VERSION")) +
		" on Docker, with the double's execd and egress"
	conformancetest.Test(t, target)
}
