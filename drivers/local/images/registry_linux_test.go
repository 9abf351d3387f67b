package images_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// refuse answers every request for a path with this part with a status.
func (s *server) refuse(part string, status int, headers ...string) {
	s.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		return true
	})
}

func TestWhatRegistriesAnswer(t *testing.T) {
	for what, test := range map[string]struct {
		part   string
		status int
		kind   plugin.Kind
		want   string
	}{
		"no such image":    {"/manifests/", http.StatusNotFound, plugin.KindInvalid, "has no image"},
		"a lost layer":     {"/blobs/", http.StatusNotFound, plugin.KindInvalid, "has no image"},
		"no login":         {"/manifests/", http.StatusUnauthorized, plugin.KindAuth, "needs a login"},
		"forbidden":        {"/v2/", http.StatusForbidden, plugin.KindAuth, "needs a login"},
		"too many pulls":   {"/manifests/", http.StatusTooManyRequests, plugin.KindRateLimited, "too many requests"},
		"another failure":  {"/manifests/", http.StatusTeapot, plugin.KindUnavailable, "status 418"},
		"a broken server":  {"/manifests/", http.StatusNotImplemented, plugin.KindUnavailable, "status 501"},
		"a redirect to us": {"/blobs/", http.StatusFound, plugin.KindUnavailable, "could not be fetched"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			registry := newServer(t)
			reference := registry.push(imageOf(t, entries{file("a", "1")}), "app:1")
			registry.refuse(test.part, test.status, "Location", "http://127.0.0.1:1/SECRET?signature=SECRET")
			store, _ := newStore(t)
			_, err := store.Get(background(t), reference, ignored)
			if plugin.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v (%s), want %q (%s)", err, plugin.KindOf(err), test.want, test.kind)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error shows where the registry redirected to: %v", err)
			}
		})
	}
}

func TestNoRegistry(t *testing.T) {
	store, _ := newStore(t)
	_, err := store.Get(background(t), "127.0.0.1:1/app", ignored)
	if plugin.KindOf(err) != plugin.KindUnavailable {
		t.Errorf("a registry that does not answer: %v (%s)", err, plugin.KindOf(err))
	}
	for _, reference := range []string{"", "Upper/case", "a b", "app:tag:tag", "app@sha256:short"} {
		if _, err := store.Get(background(t), reference, ignored); plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("the reference %q: %v", reference, err)
		}
	}
}

func TestABodyThatIsCutOff(t *testing.T) {
	registry := newServer(t)
	reference := registry.push(imageOf(t, entries{file("a", strings.Repeat("random", 100))}), "app:1")
	registry.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte("{"))
		return true
	})
	store, dir := newStore(t)
	_, err := store.Get(background(t), reference, ignored)
	if plugin.KindOf(err) != plugin.KindUnavailable {
		t.Errorf("a download that was cut off: %v (%s)", err, plugin.KindOf(err))
	}
	if _, err := os.Stat(dir); err == nil {
		onlyTheLock(t, dir)
	}
}

func TestADownloadThatBreaksOffOnce(t *testing.T) {
	registry := newServer(t)
	plain := entries{file("a", strings.Repeat("text", 100_000))}.bytes(t)
	image := newImage(t, v1.Config{}, newLayer(t, plain, plain))
	digest, _, _ := v1.SHA256(bytes.NewReader(plain))
	reference := registry.push(image, "app:1")
	var downloads atomic.Int32
	registry.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digest.String()) || downloads.Add(1) > 1 {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(plain)))
		_, _ = w.Write(plain[:len(plain)/2])
		return true
	})
	store, dir := newStore(t)
	pulled, err := store.Get(background(t), reference, ignored)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, contents(t, dir, pulled), map[string]string{"/a": strings.Repeat("text", 100_000)})
	if downloads.Load() != 2 {
		t.Errorf("the layer was asked for %d times", downloads.Load())
	}
}

func TestALayerThatIsAnother(t *testing.T) {
	registry := newServer(t)
	plain := entries{file("a", "1")}.bytes(t)
	stored := zipped(t, plain)
	reference := registry.push(newImage(t, v1.Config{}, newLayer(t, stored, plain)), "app:1")
	digest, _, _ := v1.SHA256(strings.NewReader(string(stored)))
	evil := zipped(t, entries{file("a", "2")}.bytes(t))
	registry.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digest.String()) {
			return false
		}
		_, _ = w.Write(evil)
		return true
	})
	store, dir := newStore(t)
	_, err := store.Get(background(t), reference, ignored)
	if plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), "digest") && !strings.Contains(err.Error(), "sha256") {
		t.Errorf("a layer that is not what its digest says: %v (%s)", err, plugin.KindOf(err))
	}
	onlyTheLock(t, dir)
}

// login asks for a user's name and password, and counts who had them.
func (s *server) login(user, password string) *int {
	allowed := 0
	s.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if u, p, ok := r.BasicAuth(); ok && u == user && p == password {
			allowed++
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	return &allowed
}

// TestLogins is not parallel: docker's credentials are found through the environment.
func TestLogins(t *testing.T) {
	registry := newServer(t)
	reference := registry.push(imageOf(t, entries{file("a", "1")}), "private/app:1")
	host, _, _ := strings.Cut(reference, "/")
	allowed := registry.login("ann", "s3cret")
	tools := t.TempDir()
	helper := fmt.Sprintf("#!/bin/sh\nread server\n[ \"$1 $server\" = 'get %s' ] || { echo credentials not found in native keychain; exit 1; }\necho '{\"ServerURL\":\"x\",\"Username\":\"ann\",\"Secret\":\"s3cret\"}'\n", host)
	if err := os.WriteFile(filepath.Join(tools, "docker-credential-test"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	t.Setenv("HOME", t.TempDir())
	token := base64.StdEncoding.EncodeToString([]byte("ann:s3cret"))
	for _, test := range []struct {
		what, config string
		ok           bool
	}{
		{"nothing", `{}`, false},
		{"a login", fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, token), true},
		{"a wrong password", fmt.Sprintf(`{"auths":{%q:{"auth":"YW5uOndyb25n"}}}`, host), false},
		{"a credential helper", fmt.Sprintf(`{"credHelpers":{%q:"test"}}`, host), true},
		{"a credential store", `{"credsStore":"test"}`, true},
		{"a helper that is not there", fmt.Sprintf(`{"credHelpers":{%q:"nosuch"}}`, host), false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(test.config), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("DOCKER_CONFIG", dir)
		*allowed = 0
		store, _ := newStore(t)
		_, err := store.Get(background(t), reference, ignored)
		switch {
		case test.ok && (err != nil || *allowed == 0):
			t.Errorf("with %s: %v (%d requests with it)", test.what, err, *allowed)
		case !test.ok && plugin.KindOf(err) != plugin.KindAuth:
			t.Errorf("with %s: %v (%s)", test.what, err, plugin.KindOf(err))
		case err != nil && strings.Contains(err.Error(), "s3cret"):
			t.Errorf("with %s the error shows the password: %v", test.what, err)
		}
	}
}

// TestPlatforms pulls from an index of images for several machines.
func TestPlatforms(t *testing.T) {
	ours := imageOf(t, entries{file("ours", "")})
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, entries{file("theirs", "")}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: imageOf(t, entries{file("attestation", "")}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
		mutate.IndexAddendum{Add: ours, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}},
	)
	registry := newServer(t)
	reference := strings.TrimPrefix(registry.http.URL, "http://") + "/many:1"
	parsed, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(parsed, index); err != nil {
		t.Fatal(err)
	}
	store, dir := newStore(t)
	image, err := store.Get(background(t), reference, ignored)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, contents(t, dir, image), map[string]string{"/ours": ""})
	if digest, _ := ours.Digest(); image.Digest != digest.String() {
		t.Errorf("the digest is %s, want that of the platform's image, %s", image.Digest, digest)
	}

	foreign := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: imageOf(t, nil), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}},
	})
	if err := remote.WriteIndex(parsed, foreign); err != nil {
		t.Fatal(err)
	}
	_, err = store.Pull(background(t), reference, ignored)
	if plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), "s390x") || !strings.Contains(err.Error(), runtime.GOARCH) {
		t.Errorf("an image for another machine: %v", err)
	}
}

func TestLayouts(t *testing.T) {
	one, two := imageOf(t, entries{file("one", "1")}), imageOf(t, entries{file("two", "2")})
	dir := filepath.Join(t.TempDir(), "lay:out")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	add := func(image v1.Image, tag string) {
		t.Helper()
		if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
			t.Fatal(err)
		}
	}
	store, stored := newStore(t)
	get := func(reference string) (map[string]string, error) {
		image, err := store.Get(background(t), reference, ignored)
		if err != nil {
			return nil, err
		}
		return contents(t, stored, image), nil
	}
	if _, err := get("oci:" + dir); plugin.KindOf(err) != plugin.KindInvalid {
		t.Errorf("an empty layout: %v", err)
	}
	add(one, "first")
	for _, reference := range []string{"oci:" + dir, "oci:" + dir + ":first"} {
		found, err := get(reference)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, found, map[string]string{"/one": "1"})
	}
	add(two, "registry.example.com/app:second")
	found, err := get("oci:" + dir + ":second")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, found, map[string]string{"/two": "2"})
	for reference, want := range map[string]string{
		"oci:" + dir:             "has several images",
		"oci:" + dir + ":third":  `no image with the tag "third"`,
		"oci:" + dir + "/nosuch": "cannot be read",
		"oci:":                   "cannot be read",
		"oci:" + filepath.Join(dir, "index.json"): "cannot be read",
		"oci:" + t.TempDir():                      "not a directory with a usable OCI image layout",
	} {
		if _, err := get(reference); plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", reference, err, want)
		}
	}
	// A layout whose blobs were changed is not believed.
	layers, _ := one.Layers()
	digest, _ := layers[0].Digest()
	if err := os.WriteFile(filepath.Join(dir, "blobs", "sha256", digest.Hex), zipped(t, entries{file("evil", "")}.bytes(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	fresh, _ := newStore(t)
	if _, err := fresh.Get(background(t), "oci:"+dir+":first", ignored); plugin.KindOf(err) != plugin.KindInvalid {
		t.Errorf("a layout with a changed layer: %v", err)
	}
}

func TestArchives(t *testing.T) {
	file1 := filepath.Join(t.TempDir(), "one:image.tar")
	tag := func(text string) name.Tag {
		parsed, err := name.NewTag(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	one, two := imageOf(t, entries{file("one", "1")}), imageOf(t, entries{file("two", "2")})
	if err := tarball.WriteToFile(file1, tag("app:1"), one); err != nil {
		t.Fatal(err)
	}
	file2 := filepath.Join(t.TempDir(), "several.tar")
	if err := tarball.MultiWriteToFile(file2, map[name.Tag]v1.Image{tag("app:1"): one, tag("registry.example.com/app:2"): two}); err != nil {
		t.Fatal(err)
	}
	store, dir := newStore(t)
	for reference, want := range map[string]string{
		"docker-archive:" + file1:                                 "/one",
		"docker-archive:" + file1 + ":app:1":                      "/one",
		"docker-archive:" + file2 + ":1":                          "/one",
		"docker-archive:" + file2 + ":registry.example.com/app:2": "/two",
	} {
		image, err := store.Get(background(t), reference, ignored)
		if err != nil {
			t.Errorf("%s: %v", reference, err)
			continue
		}
		expect(t, contents(t, dir, image), map[string]string{want: map[string]string{"/one": "1", "/two": "2"}[want]})
	}
	compressed := filepath.Join(t.TempDir(), "x.tar.gz")
	if err := os.WriteFile(compressed, zipped(t, []byte("x")), 0o644); err != nil {
		t.Fatal(err)
	}
	for reference, want := range map[string]string{
		"docker-archive:" + file2:            "has several images",
		"docker-archive:" + file2 + ":third": `has no image "third"`,
		"docker-archive:" + compressed:       "not an archive with a usable image",
		"docker-archive:/nosuch/file":        "cannot be read",
		"docker-archive:" + t.TempDir():      "cannot be read",
	} {
		if _, err := store.Get(background(t), reference, ignored); plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", reference, err, want)
		}
	}
	if images, _ := store.List(); len(images) != 2 {
		t.Errorf("there are %d images, want one for each digest", len(images))
	}
}
