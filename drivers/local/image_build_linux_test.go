package local_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// layer is a tar stream that is being written.
type layer struct {
	t      testing.TB
	buffer bytes.Buffer
	*tar.Writer
}

func newLayer(t testing.TB) *layer {
	l := &layer{t: t}
	l.Writer = tar.NewWriter(&l.buffer)
	return l
}

func (l *layer) add(header tar.Header, content []byte) *layer {
	l.t.Helper()
	header.Size = int64(len(content))
	if err := l.WriteHeader(&header); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.Write(content); err != nil {
		l.t.Fatal(err)
	}
	return l
}

func (l *layer) file(name, content string) *layer {
	return l.add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, []byte(content))
}

// addHost adds a file, a link or a tree of this machine.
func (l *layer) addHost(path string) *layer {
	l.t.Helper()
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target, _ := os.Readlink(name)
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		header.Name = name
		var content []byte
		if info.Mode().IsRegular() {
			if content, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		l.add(*header, content)
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return l
}

// addLibraries adds the libraries that a program of this machine needs.
func (l *layer) addLibraries(program string) *layer {
	l.t.Helper()
	output, err := exec.Command("ldd", program).Output()
	if err != nil {
		l.t.Skipf("ldd %s: %v", program, err)
	}
	for _, library := range regexp.MustCompile(`/\S+`).FindAllString(string(output), -1) {
		content, err := os.ReadFile(library)
		if err != nil {
			l.t.Fatal(err)
		}
		l.add(tar.Header{Name: library, Typeflag: tar.TypeReg, Mode: 0o755}, content)
	}
	return l
}

func (l *layer) done() v1.Layer {
	l.t.Helper()
	if err := l.Close(); err != nil {
		l.t.Fatal(err)
	}
	made, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(l.buffer.Bytes())), nil
	}, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		l.t.Fatal(err)
	}
	return made
}

func newImage(t testing.TB, config v1.Config, layers ...*layer) v1.Image {
	t.Helper()
	image := empty.Image
	for _, each := range layers {
		var err error
		if image, err = mutate.AppendLayers(image, each.done()); err != nil {
			t.Fatal(err)
		}
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

// imageRegistry is a registry on this machine.
func imageRegistry(t testing.TB) *httptest.Server {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return server
}

func push(t testing.TB, server *httptest.Server, image v1.Image, repository string) string {
	t.Helper()
	reference := strings.TrimPrefix(server.URL, "http://") + "/" + repository
	parsed, err := name.ParseReference(reference)
	if err == nil {
		err = remote.Write(parsed, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return reference
}

// staticProgram says where it runs, as whom and with what; it is all that a distroless
// image has.
const staticProgram = `package main

import (
	"fmt"
	"os"
)

func main() {
	dir, _ := os.Getwd()
	fmt.Printf("%s %d:%d\n", dir, os.Getuid(), os.Getgid())
	for _, name := range os.Args[1:] {
		fmt.Printf("%s=%s\n", name, os.Getenv(name))
	}
}
`

var buildStatic = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "static-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "program.go")
	if err := os.WriteFile(source, []byte(staticProgram), 0o600); err != nil {
		return nil, err
	}
	if err := plugintest.Build(dir, source); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "program"))
})

// distroless is an image with a program and an account, and nothing else.
func distroless(t testing.TB, config v1.Config) v1.Image {
	t.Helper()
	program, err := buildStatic()
	if err != nil {
		t.Fatal(err)
	}
	return newImage(t, config, newLayer(t).add(tar.Header{Name: "say", Typeflag: tar.TypeReg, Mode: 0o755}, program).
		file("etc/passwd", "root:x:0:0::/root:/bin/false\nann:x:1234:56:Ann:/home/ann:/bin/false\n"))
}

func image(reference string) func(*plugin.SandboxSpec) {
	return func(spec *plugin.SandboxSpec) { spec.Image = reference }
}

func say(names ...string) *plugin.ExecRequest {
	return &plugin.ExecRequest{Argv: append([]string{"/say"}, names...)}
}
