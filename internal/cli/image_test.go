package cli_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"
)

// scriptMakeImage writes an image with one file, /version, as docker save does, and with
// a program when it is named: makeimage FILE VERSION [PROGRAM].
func scriptMakeImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: makeimage FILE VERSION [PROGRAM]")
	}
	files := map[string]string{"version": args[1]}
	if len(args) > 2 {
		files["program"] = ts.ReadFile(args[2])
	}
	layer := tarOf(ts, files)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"FROM_IMAGE=yes"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(layer)))}},
	})
	ts.Check(err)
	manifest := `[{"Config":"config.json","RepoTags":["app:` + args[1] + `"],"Layers":["layer.tar"]}]`
	archive := tarOf(ts, map[string]string{"manifest.json": manifest, "config.json": string(config), "layer.tar": layer})
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(archive), 0o644))
}

func tarOf(ts *testscript.TestScript, files map[string]string) string {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, name := range []string{"manifest.json", "config.json", "layer.tar", "version", "program"} {
		content, ok := files[name]
		if !ok {
			continue
		}
		ts.Check(archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}))
		_, err := io.WriteString(archive, content)
		ts.Check(err)
	}
	ts.Check(archive.Close())
	return buffer.String()
}

// testRegistry is a registry on this machine, as two servers: one as it is, and one with
// TLS that pretends to be example.com for who comes through the proxy.
type testRegistry struct {
	plain, secure, proxy *httptest.Server
}

// registryKey is under what a script keeps its registry.
type registryKey struct{}

// scriptRegistry runs a registry. "registry start" says in $REGISTRY where it is, and in
// $PROXY and ca.pem how to come to it as example.com; "registry push FILE NAME" gives it
// an image; "registry stop" ends it.
func scriptRegistry(ts *testscript.TestScript, neg bool, args []string) {
	kept := ts.Value(registryKey{}).(*testRegistry)
	switch {
	case neg || len(args) == 0:
		ts.Fatalf("usage: registry start|push FILE NAME|stop")
	case args[0] == "start":
		handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		kept.plain, kept.secure = httptest.NewServer(handler), httptest.NewTLSServer(handler)
		kept.proxy = httptest.NewServer(tunnelTo(kept.secure.Listener.Addr().String()))
		ts.Defer(kept.close)
		ts.Setenv("REGISTRY", strings.TrimPrefix(kept.plain.URL, "http://"))
		ts.Setenv("PROXY", kept.proxy.URL)
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kept.secure.Certificate().Raw})
		ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), authority, 0o600))
	case args[0] == "stop":
		kept.close()
	case args[0] == "push" && len(args) == 3:
		image, err := tarball.ImageFromPath(ts.MkAbs(args[1]), nil)
		ts.Check(err)
		reference, err := name.ParseReference(ts.Getenv("REGISTRY") + "/" + args[2])
		ts.Check(err)
		ts.Check(remote.Write(reference, image))
	}
}

func (r *testRegistry) close() {
	for _, server := range []*httptest.Server{r.proxy, r.plain, r.secure} {
		server.CloseClientConnections()
		server.Close()
	}
}

// tunnelTo is a proxy that leads to one address, whatever it is asked for.
func tunnelTo(address string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		there, err := net.Dial("tcp", address)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		here, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			_ = there.Close()
			return
		}
		for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				_ = way[0].Close()
			}()
		}
	}
}
