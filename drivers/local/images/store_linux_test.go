package images_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandboxctl/sandboxctl/drivers/local/images"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestACachedImageNeedsNoRegistry(t *testing.T) {
	registry := newServer(t)
	reference := registry.push(imageOf(t, entries{file("a", "1")}), "app:latest")
	store, dir := newStore(t)
	first, err := store.Get(background(t), reference, ignored)
	if err != nil {
		t.Fatal(err)
	}
	registry.push(imageOf(t, entries{file("a", "2")}), "app:latest")
	registry.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("the registry was asked for %s", r.URL.Path)
		return false
	})
	// Another name for the same thing, and a new process.
	for _, name := range []string{reference, strings.TrimSuffix(reference, ":latest")} {
		again, err := images.NewStore(dir).Get(background(t), name, ignored)
		if err != nil || again.Digest != first.Digest {
			t.Errorf("%s again: %v (%v), want %s", name, again, err, first.Digest)
		}
	}
	registry.intercept(nil)
	newer, err := store.Pull(background(t), reference, ignored)
	if err != nil || newer.Digest == first.Digest {
		t.Fatalf("pulled again: %v (%v)", newer, err)
	}
	registry.http.Close()
	last, err := store.Get(background(t), reference, ignored)
	if err != nil || last.Digest != newer.Digest {
		t.Errorf("after the pull: %v (%v)", last, err)
	}
	// The older one is there still, without a name.
	listed, err := store.List()
	if err != nil || len(listed) != 2 || len(listed[0].References)+len(listed[1].References) != 1 {
		t.Errorf("listed: %+v (%v)", listed, err)
	}
}

func TestConfigurationIsKept(t *testing.T) {
	store, dir := newStore(t)
	config := v1.Config{Env: []string{"A=1", "PATH=/x"}, WorkingDir: "/srv", User: "ann:staff", Entrypoint: []string{"ignored"}}
	reference := newServer(t).push(newImage(t, config), "app")
	if _, err := store.Get(background(t), reference, ignored); err != nil {
		t.Fatal(err)
	}
	image, err := images.NewStore(dir).Get(background(t), reference, ignored)
	if err != nil || !slices.Equal(image.Env, config.Env) || image.Workdir != "/srv" || image.User != "ann:staff" || image.PulledAt.IsZero() || !image.LastUsedAt.IsZero() {
		t.Errorf("the image is %+v (%v)", image, err)
	}
}

func TestHostileConfigurations(t *testing.T) {
	server := newServer(t)
	for what, config := range map[string]v1.Config{
		"workdir": {WorkingDir: "/a\x00b"}, "user": {User: "\x00"}, "environment": {Env: []string{"A=\x00"}},
	} {
		store, _ := newStore(t)
		if _, err := store.Get(background(t), server.push(newImage(t, config), "app:"+what), ignored); plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("a zero byte in the %s: %v", what, err)
		}
	}
}

// TestManyWantTheSameImage lets two stores, as two processes have them, pull at once.
func TestManyWantTheSameImage(t *testing.T) {
	registry := newServer(t)
	image := imageOf(t, entries{file("a", strings.Repeat("1", 100_000))})
	layers, _ := image.Layers()
	digest, _ := layers[0].Digest()
	reference := registry.push(image, "app")
	var mu sync.Mutex
	downloads := 0
	slow := make(chan struct{})
	registry.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, digest.String()) {
			mu.Lock()
			downloads++
			mu.Unlock()
			<-slow
		}
		return false
	})
	_, dir := newStore(t)
	var work sync.WaitGroup
	waiting := make(chan struct{}, 100)
	for range 6 {
		work.Go(func() {
			got, err := images.NewStore(dir).Get(background(t), reference, func(p plugin.Progress) {
				if strings.HasPrefix(p.Message, "waiting") {
					waiting <- struct{}{}
				}
			})
			if err != nil || got == nil {
				t.Errorf("one of many: %v", err)
			}
		})
	}
	for range 5 {
		select {
		case <-waiting:
		case <-time.After(time.Minute):
			t.Fatal("the others do not wait for the one")
		}
	}
	close(slow)
	work.Wait()
	if downloads != 1 {
		t.Errorf("the layer was downloaded %d times", downloads)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.partial")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestAPullThatIsGivenUp(t *testing.T) {
	registry := newServer(t)
	reference := registry.push(imageOf(t, entries{file("a", "1")}), "app")
	ctx, cancel := context.WithCancel(background(t))
	registry.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			cancel()
			<-r.Context().Done()
		}
		return false
	})
	store, dir := newStore(t)
	if _, err := store.Get(ctx, reference, ignored); !errors.Is(err, context.Canceled) {
		t.Errorf("a pull that was given up: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		onlyTheLock(t, dir)
	}
}

// The variables by which the test's own binary becomes a process that pulls.
const pullInto, pullFrom = "SANDBOXCTL_TEST_PULL_INTO", "SANDBOXCTL_TEST_PULL_FROM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(pullInto); dir != "" {
		_, _ = images.NewStore(dir).Get(context.Background(), os.Getenv(pullFrom), ignored)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAPullThatIsKilled kills a process in the middle of a layer.
func TestAPullThatIsKilled(t *testing.T) {
	registry := newServer(t)
	plain := entries{file("a", strings.Repeat("1", 1<<20)), file("b", "2")}.bytes(t)
	image := newImage(t, v1.Config{}, newLayer(t, plain, plain))
	layers, _ := image.Layers()
	digest, _ := layers[0].Digest()
	reference := registry.push(image, "app")
	half := make(chan struct{})
	registry.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digest.String()) {
			return false
		}
		_, _ = w.Write(plain[:len(plain)/2])
		w.(http.Flusher).Flush()
		close(half)
		<-r.Context().Done()
		return true
	})
	store, dir := newStore(t)
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), pullInto+"="+dir, pullFrom+"="+reference)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Process.Kill(); _ = process.Wait() }()
	<-half
	partial := func() []string {
		found, _ := filepath.Glob(filepath.Join(dir, "*.partial"))
		return found
	}
	if len(partial()) != 1 {
		t.Fatalf("a pull on its way has %q", partial())
	}
	// It lives, so it is let alone.
	if err := store.Sweep(background(t)); err != nil || len(partial()) != 1 {
		t.Fatalf("a sweep has left %q (%v)", partial(), err)
	}
	_ = process.Process.Signal(syscall.SIGKILL)
	_ = process.Wait()
	registry.intercept(nil)
	if err := store.Sweep(background(t)); err != nil {
		t.Fatal(err)
	}
	onlyTheLock(t, dir)
	pulled, err := store.Get(background(t), reference, ignored)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, contents(t, dir, pulled), map[string]string{"/a": strings.Repeat("1", 1<<20), "/b": "2"})
}

func TestSweepRemovesWhatBelongsToNothing(t *testing.T) {
	store, dir := newStore(t)
	if err := store.Sweep(background(t)); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	reference := newServer(t).push(imageOf(t, entries{file("a", "1")}), "app")
	image, err := store.Get(background(t), reference, ignored)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sha256-1.erofs", "sha256-2.json", ".sha256-3.json12345", "sha256-4.partial"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Sweep(background(t)); err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadDir(dir)
	if err != nil || len(found) != 3 {
		t.Errorf("there are %v (%v), want the lock and two files of the image", found, err)
	}
	if again, err := store.Get(background(t), reference, ignored); err != nil || again.Digest != image.Digest {
		t.Errorf("the image after the sweep: %v (%v)", again, err)
	}
}

func TestDamagedFilesAreNotUsed(t *testing.T) {
	for what, damage := range map[string]func(path string) error{
		"cut":  func(path string) error { return os.Truncate(path, 100) },
		"gone": os.Remove,
		"a record": func(path string) error {
			return os.WriteFile(strings.TrimSuffix(path, ".erofs")+".json", []byte("{"), 0o600)
		},
		"no image": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, make([]byte, info.Size()), 0o600)
		},
	} {
		t.Run(what, func(t *testing.T) {
			registry := newServer(t)
			reference := registry.push(imageOf(t, entries{file("a", "1")}), "app")
			store, dir := newStore(t)
			image, err := store.Get(background(t), reference, ignored)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(dir, strings.Replace(image.Digest, ":", "-", 1)+".erofs")); err != nil {
				t.Fatal(err)
			}
			again, err := store.Get(background(t), reference, ignored)
			if err != nil {
				t.Fatalf("it is not pulled again: %v", err)
			}
			expect(t, contents(t, dir, again), map[string]string{"/a": "1"})
		})
	}
}

func TestRemoval(t *testing.T) {
	registry := newServer(t)
	store, dir := newStore(t)
	if _, err := store.Remove(background(t), "x"); plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("a removal from nothing: %v", err)
	}
	get := func(repository, content string) *images.Image {
		t.Helper()
		image, err := store.Get(background(t), registry.push(imageOf(t, entries{file("a", content)}), repository), ignored)
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	host := strings.TrimPrefix(registry.http.URL, "http://")
	one := get("one:1", "1")
	get("same:1", "1")
	two := get("two", "2")
	three := get("three:x", "3")

	if freed, err := store.Remove(background(t), host+"/same:1"); err != nil || freed != 0 {
		t.Errorf("one of two names: %d (%v)", freed, err)
	}
	if _, err := store.Remove(background(t), host+"/t"); plugin.KindOf(err) != plugin.KindInvalid {
		t.Errorf("the beginning of two names: %v", err)
	}
	if _, err := store.Remove(background(t), ""); plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("no name at all: %v", err)
	}
	held := filepath.Join(dir, "..", "held")
	if err := store.Use(two, held); err != nil {
		t.Fatal(err)
	}
	listed, _ := store.List()
	for _, each := range listed {
		if want := map[string]int{two.Digest: 1}[each.Digest]; each.Sandboxes != want || each.LastUsedAt.IsZero() != (want == 0) {
			t.Errorf("%s has %d sandboxes, used %s", each.Name(), each.Sandboxes, each.LastUsedAt)
		}
	}
	for query, frees := range map[string]bool{one.Digest: true, host + "/two:latest": false, strings.TrimPrefix(three.Digest, "sha256:")[:12]: true} {
		if freed, err := store.Remove(background(t), query); err != nil || (freed > 0) != frees {
			t.Errorf("removing %s: %d bytes (%v)", query, freed, err)
		}
	}
	if _, err := os.Stat(held); err != nil {
		t.Errorf("the image is taken from its sandbox: %v", err)
	}
	if err := store.Use(one, held+"2"); plugin.KindOf(err) != plugin.KindConflict {
		t.Errorf("the use of an image that is gone: %v", err)
	}
	onlyTheLock(t, dir)
}
