package local_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandboxctl/sandboxctl/drivers/local/network"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestDistroless(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		config := v1.Config{
			Env: []string{"FROM_IMAGE=image", "BOTH=image", "PATH=/image"}, WorkingDir: "/srv/app", User: "ann",
			Entrypoint: []string{"/nosuch"}, Cmd: []string{"ignored"},
		}
		made := distroless(t, config)
		reference := push(t, imageRegistry(t), made, "distroless:1")
		f := startDriver(t, uid)
		spec := newSpec()
		spec.Image, spec.Env = reference, map[string]string{"BOTH": "spec"}
		sandbox, err := f.Create(f.ctx(), spec, &events{})
		if err != nil {
			t.Fatal(err)
		}
		ref := plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle}
		digest, _ := made.Digest()
		if sandbox.Image != reference || sandbox.Workdir != "/srv/app" || !strings.Contains(string(sandbox.Details), digest.String()) {
			t.Errorf("the sandbox is %+v with details %s", sandbox, sandbox.Details)
		}
		want := "/srv/app 1234:56\nFROM_IMAGE=image\nBOTH=spec\nPATH=/image\nHOME=/home/ann\nUSER=ann\n"
		if got := f.exec(ref, say("FROM_IMAGE", "BOTH", "PATH", "HOME", "USER")); got.stdout != want {
			t.Errorf("a command says %q (%s), want %q", got.stdout, got.stderr, want)
		}
		other := say("BOTH")
		other.User, other.Workdir, other.Env = "root", "/etc", map[string]string{"BOTH": "command"}
		if got := f.exec(ref, other); got.stdout != "/etc 0:0\nBOTH=command\n" {
			t.Errorf("another user says %q (%s)", got.stdout, got.stderr)
		}
		if err := f.WriteFile(f.ctx(), ref, "note", 0o644, strings.NewReader("text")); err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		if err := f.ReadFile(f.ctx(), ref, "/srv/app/note", 0, &content); err != nil || content.String() != "text" {
			t.Errorf("the file has %q (%v)", content.String(), err)
		}
		entries, err := f.ReadDir(f.ctx(), ref, "/etc")
		if err != nil || len(entries) != 5 {
			t.Errorf("/etc has %+v (%v), want passwd and four of ours", entries, err)
		}
		content.Reset()
		if err := f.ReadFile(f.ctx(), ref, "/etc/resolv.conf", 0, &content); err != nil || content.String() != "nameserver "+network.GatewayIPv4.String()+"\n" {
			t.Errorf("resolv.conf has %q (%v)", content.String(), err)
		}
		if info, err := f.Stat(f.ctx(), ref, ".", false); err != nil || info.Mode != 0o755 {
			t.Errorf("the working directory is %+v (%v)", info, err)
		}
	})
}

func TestWorkdirsInImages(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		server := imageRegistry(t)
		f := startDriver(t, uid)
		for _, test := range []struct {
			image, spec, want string
		}{{"", "", "/workspace"}, {"", "/a/b c", "/a/b c"}, {"relative", "", "/relative"}, {"/image", "/spec", "/spec"}, {"/", "", "/"}, {"", "/etc", "/etc"}} {
			ref := f.create(image(push(t, server, distroless(t, v1.Config{WorkingDir: test.image}), "w:1")), func(spec *plugin.SandboxSpec) {
				spec.Workdir = test.spec
				if _, err := f.PullImage(f.ctx(), spec.Image, func(plugin.Progress) {}); err != nil {
					t.Fatal(err)
				}
			})
			if got := f.exec(ref, say()); got.stdout != test.want+" 0:0\n" {
				t.Errorf("with %+v a command says %q (%s)", test, got.stdout, got.stderr)
			}
		}
	})
}

func TestImagesThatCannotRun(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		server := imageRegistry(t)
		f := startDriver(t, uid)
		for what, test := range map[string]struct {
			reference string
			workdir   string
			want      string
		}{
			"an unknown user":     {push(t, server, distroless(t, v1.Config{User: "nobody-here"}), "user:1"), "", `no user "nobody-here"`},
			"an unknown group":    {push(t, server, distroless(t, v1.Config{User: "ann:nogroup"}), "group:1"), "", `no group "nogroup"`},
			"a file as workdir":   {push(t, server, distroless(t, v1.Config{WorkingDir: "/say"}), "workdir:1"), "", "cannot be made"},
			"a path through one":  {push(t, server, distroless(t, v1.Config{}), "plain:1"), "/say/dir", "cannot be made"},
			"no absolute workdir": {push(t, server, distroless(t, v1.Config{}), "plain:1"), "dir", "not an absolute path"},
			"no image":            {strings.TrimPrefix(server.URL, "http://") + "/nosuch:1", "", "has no image"},
		} {
			spec := newSpec()
			spec.Image, spec.Workdir = test.reference, test.workdir
			_, err := f.Create(f.ctx(), spec, &events{})
			if plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v (%s), want %q", what, err, plugin.KindOf(err), test.want)
			}
		}
		if left := leftovers(f.stateDir); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func TestImagesAreSharedAndKept(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		server := imageRegistry(t)
		reference := push(t, server, distroless(t, v1.Config{}), "shared")
		f := startDriver(t, uid)
		one := f.create(image(reference))
		server.Close()
		two := f.create(image(reference))
		before := sum(t, f.stateDir)
		if err := f.WriteFile(f.ctx(), one, "/etc/passwd", 0o644, strings.NewReader("changed")); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteFile(f.ctx(), one, "/new", 0o644, strings.NewReader("new")); err != nil {
			t.Fatal(err)
		}
		if got := f.exec(two, &plugin.ExecRequest{Argv: []string{"/say"}, User: "ann"}); got.stdout != "/workspace 1234:56\n" {
			t.Errorf("the other sandbox says %q (%s)", got.stdout, got.stderr)
		}
		if _, err := f.Stat(f.ctx(), two, "/new", false); plugin.KindOf(err) != plugin.KindPath {
			t.Errorf("the other sandbox's new file: %v", err)
		}
		if after := sum(t, f.stateDir); after != before {
			t.Errorf("the image is %x, and was %x", after, before)
		}

		listed, err := f.ListImages(f.ctx())
		if err != nil || len(listed) != 1 || listed[0].Sandboxes != 2 || listed[0].LastUsedAt.IsZero() {
			t.Fatalf("the images are %+v (%v)", listed, err)
		}
		if freed, err := f.RemoveImage(f.ctx(), reference); err != nil || freed != 0 {
			t.Errorf("removing it freed %d (%v)", freed, err)
		}
		if got := f.exec(two, say()); got.stdout != "/workspace 0:0\n" {
			t.Errorf("after that a command says %q (%s)", got.stdout, got.stderr)
		}
		spec := newSpec()
		spec.Image = reference
		if _, err := f.Create(f.ctx(), spec, &events{}); plugin.KindOf(err) != plugin.KindUnavailable {
			t.Errorf("a create without image and registry: %v", err)
		}
		if _, err := f.RemoveImage(f.ctx(), reference); plugin.KindOf(err) != plugin.KindNotFound {
			t.Errorf("removing it again: %v", err)
		}
	})
}

// sum is a digest of the only image's file.
func sum(t *testing.T, stateDir string) [sha256.Size]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(stateDir, "images", "*.erofs"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the images are %q (%v)", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}

// TestPythonFromAnImage runs a real program with thousands of files.
func TestPythonFromAnImage(t *testing.T) {
	python, err := filepath.EvalSymlinks("/usr/bin/python3")
	if err != nil {
		t.Skip("there is no python3 on this machine")
	}
	library := "/usr/lib/" + filepath.Base(python)
	if _, err := os.Stat(library); err != nil {
		t.Skip(err)
	}
	made := newImage(t, v1.Config{}, newLayer(t).addHost(python).addLibraries(python), newLayer(t).addHost(library))
	archive := filepath.Join(t.TempDir(), "python.tar")
	tag, err := name.NewTag("python:test")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(archive, tag, made); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{archive, filepath.Dir(archive), filepath.Dir(filepath.Dir(archive))} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create(image("docker-archive:" + archive))
		script := `import json, decimal, asyncio, tempfile, subprocess, sys
files = sum(1 for _ in __import__("pathlib").Path(sys.prefix, "lib").rglob("*.py"))
print(json.dumps([files > 100, subprocess.run([sys.executable, "-c", "print(42)"], capture_output=True, text=True).stdout]))`
		got := f.exec(ref, &plugin.ExecRequest{Argv: []string{python, "-c", script}})
		if got.stdout != `[true, "42\n"]`+"\n" {
			t.Errorf("python says %q (%s)", got.stdout, got.stderr)
		}
	})
}

// TestAPullDiesWithTheDriver kills a driver while it pulls for a create.
func TestAPullDiesWithTheDriver(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		content := distroless(t, v1.Config{})
		layers, _ := content.Layers()
		digest, _ := layers[0].Digest()
		inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		half := make(chan struct{}, 1)
		var stuck sync.Mutex
		isStuck := true
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stuck.Lock()
			now := isStuck
			stuck.Unlock()
			if now && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, digest.String()) {
				half <- struct{}{}
				<-r.Context().Done()
				return
			}
			inner.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		reference := push(t, server, content, "slow")
		f := startDriver(t, uid)
		spec := newSpec()
		spec.Image = reference
		failed := make(chan error, 1)
		go func() {
			_, err := f.Create(context.Background(), spec, &events{})
			failed <- err
		}()
		select {
		case <-half:
		case <-time.After(time.Minute):
			t.Fatal("the layer is not asked for")
		}
		if err := syscall.Kill(f.pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err == nil {
			t.Error("the create succeeded")
		}
		stuck.Lock()
		isStuck = false
		stuck.Unlock()
		again := startDriverIn(t, uid, f.stateDir, built, here)
		if _, err := again.List(again.ctx(), plugin.ListRequest{}); err != nil {
			t.Fatal(err)
		}
		left, _ := filepath.Glob(filepath.Join(f.stateDir, "images", "*.*"))
		if left = append(left, leftovers(f.stateDir)...); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		ref := again.create(image(reference))
		if got := again.exec(ref, say()); got.stdout != "/workspace 0:0\n" {
			t.Errorf("a command says %q (%s)", got.stdout, got.stderr)
		}
	})
}

// TestDockersLogins reads the directory that the host passes on.
func TestDockersLogins(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		open := true
		var mu sync.Mutex
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if user, password, _ := r.BasicAuth(); !open && (user != "ann" || password != "s3cret") {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			inner.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		reference := push(t, server, distroless(t, v1.Config{}), "private:1")
		mu.Lock()
		open = false
		mu.Unlock()
		f := startDriver(t, uid)
		pull := func() error {
			_, err := f.PullImage(f.ctx(), reference, func(plugin.Progress) {})
			return err
		}
		if err := pull(); plugin.KindOf(err) != plugin.KindAuth {
			t.Errorf("without a login: %v", err)
		}
		dir := filepath.Join(f.stateDir, "docker")
		config := fmt.Sprintf(`{"auths":{%q:{"auth":"YW5uOnMzY3JldA=="}}}`, strings.TrimPrefix(server.URL, "http://"))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Configure(f.ctx(), plugin.Config{StateDir: f.stateDir, Environment: map[string]string{"DOCKER_CONFIG": dir}}); err != nil {
			t.Fatal(err)
		}
		if err := pull(); err != nil {
			t.Errorf("with a login: %v", err)
		}
	})
}
