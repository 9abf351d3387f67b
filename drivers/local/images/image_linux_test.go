package images_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"gvisor.dev/gvisor/pkg/erofs"

	"github.com/sandboxctl/sandboxctl/drivers/local/images"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// entries is a layer: a file's name and content, or a header of any kind.
type entries []tar.Header

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), PAXRecords: map[string]string{"TEST.content": content}}
}

func dir(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: target}
}

func hard(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}
}

// bytes is the layer as a tar stream.
func (e entries) bytes(t testing.TB) []byte {
	t.Helper()
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, header := range e {
		content := header.PAXRecords["TEST.content"]
		header.PAXRecords = nil
		header.Format = tar.FormatPAX
		if err := archive.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func zipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	_, err := writer.Write(content)
	if err := errors.Join(err, writer.Close()); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// layerOf is a layer whose stored form may differ from what its digest promises.
type layerOf struct {
	v1.Layer
	diffID v1.Hash
}

func (l layerOf) DiffID() (v1.Hash, error) { return l.diffID, nil }

func newLayer(t testing.TB, stored, plain []byte) v1.Layer {
	t.Helper()
	diffID, _, err := v1.SHA256(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	return layerOf{static.NewLayer(stored, types.OCILayer), diffID}
}

// newImage makes an image for this machine out of layers.
func newImage(t testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	return image
}

// imageOf makes an image out of layers that are gzipped as usual.
func imageOf(t testing.TB, layers ...entries) v1.Image {
	t.Helper()
	var made []v1.Layer
	for _, each := range layers {
		plain := each.bytes(t)
		made = append(made, newLayer(t, zipped(t, plain), plain))
	}
	return newImage(t, v1.Config{}, made...)
}

// server is a registry on this machine.
type server struct {
	t    testing.TB
	http *httptest.Server
	// before may answer a request itself.
	before atomic.Pointer[interceptor]
}

type interceptor func(http.ResponseWriter, *http.Request) (answered bool)

// intercept lets a function, or none, look at requests first.
func (s *server) intercept(before interceptor) { s.before.Store(&before) }

func newServer(t testing.TB) *server {
	s := &server{t: t}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := s.before.Load(); before == nil || *before == nil || !(*before)(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.http.Close)
	return s
}

// push stores an image and returns its reference.
func (s *server) push(image v1.Image, repository string) string {
	s.t.Helper()
	reference := strings.TrimPrefix(s.http.URL, "http://") + "/" + repository
	parsed, err := name.ParseReference(reference)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := remote.Write(parsed, image); err != nil {
		s.t.Fatal(err)
	}
	return reference
}

func newStore(t testing.TB) (*images.Store, string) {
	dir := filepath.Join(t.TempDir(), "images")
	return images.NewStore(dir), dir
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func ignored(plugin.Progress) {}

// pull pushes an image and pulls it.
func pull(t testing.TB, image v1.Image) (*images.Image, string, error) {
	t.Helper()
	store, dir := newStore(t)
	pulled, err := store.Pull(background(t), newServer(t).push(image, "some/app:1"), ignored)
	return pulled, dir, err
}

// contents reads an image as gVisor does: every path with what there is to know of it.
func contents(t testing.TB, dir string, image *images.Image) map[string]string {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, strings.Replace(image.Digest, ":", "-", 1)+".erofs"))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := erofs.OpenImage(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	found := map[string]string{}
	gather(t, opened, opened.RootNid(), "", found)
	return found
}

func gather(t testing.TB, opened *erofs.Image, nid uint64, path string, found map[string]string) {
	t.Helper()
	inode, err := opened.Inode(nid)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	switch {
	case inode.IsDir():
		found[path+"/"] = ""
		err = inode.IterDirents(func(name string, _ uint8, nid uint64) error {
			if name != "." && name != ".." {
				gather(t, opened, nid, path+"/"+name, found)
			}
			return nil
		})
	case inode.IsSymlink():
		var target string
		target, err = inode.Readlink()
		found[path] = "-> " + target
	default:
		ranges, problem := inode.DataRanges()
		found[path], err = string(ranges[0].Bytes), problem
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// ours are the names that every image has in the end.
var ours = []string{
	"/", "/.sandboxctl/", "/.sandboxctl/guest", "/dev/", "/proc/", "/sys/", "/tmp/", "/etc/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab",
}

// expect compares an image with what it should have besides ours.
func expect(t testing.TB, got, want map[string]string) {
	t.Helper()
	got = maps.Clone(got)
	for _, name := range ours {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
		if _, wanted := want[name]; !wanted {
			delete(got, name)
		}
	}
	for name, content := range want {
		if has, ok := got[name]; !ok || has != content {
			t.Errorf("%s is %q (there: %v), want %q", name, has, ok, content)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, wanted := want[name]; !wanted {
			t.Errorf("%s is too much", name)
		}
	}
}

func lookup(t testing.TB, dir string, image *images.Image, name string) erofs.Inode {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, strings.Replace(image.Digest, ":", "-", 1)+".erofs"))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := erofs.OpenImage(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	root, err := opened.Inode(opened.RootNid())
	if err != nil {
		t.Fatal(err)
	}
	nid, err := root.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	inode, err := opened.Inode(nid)
	if err != nil {
		t.Fatal(err)
	}
	return inode
}

// onlyTheLock checks that a failed pull has left nothing.
func onlyTheLock(t testing.TB, dir string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range found {
		if each.Name() != "lock" {
			t.Errorf("%s was left", each.Name())
		}
	}
}
