package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	reader "gvisor.dev/gvisor/pkg/erofs"

	"github.com/sandboxctl/sandboxctl/drivers/local/images/erofs"
)

// merge applies layers and returns what gVisor sees, or the first failure.
func merge(t *testing.T, layers ...[]byte) (map[string]string, error) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	writer := erofs.NewWriter(file)
	result := newTree(writer)
	result.most = 1 << 20
	for _, layer := range layers {
		if err := result.apply(t.Context(), bytes.NewReader(layer)); err != nil {
			return nil, err
		}
	}
	if err := writer.Finish(result.root); err != nil {
		t.Fatalf("what was taken cannot be written: %v", err)
	}
	again, err := os.Open(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := reader.OpenImage(again)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	found := map[string]string{}
	see(t, opened, opened.RootNid(), "", found)
	return found, nil
}

func see(t *testing.T, opened *reader.Image, nid uint64, name string, found map[string]string) {
	t.Helper()
	inode, err := opened.Inode(nid)
	switch {
	case err != nil:
		t.Fatalf("%q: %v", name, err)
	case inode.IsDir():
		found[name+"/"] = ""
		err = inode.IterDirents(func(entry string, _ uint8, nid uint64) error {
			if entry != "." && entry != ".." {
				see(t, opened, nid, name+"/"+entry, found)
			}
			return nil
		})
	case inode.IsSymlink():
		_, err = inode.Readlink()
	case inode.IsRegular():
		ranges, problem := inode.DataRanges()
		found[name], err = string(ranges[0].Bytes), problem
	}
	if err != nil {
		t.Fatalf("%q: %v", name, err)
	}
}

// model is what an image should have, kept in the simplest way: paths and contents.
// Directories end in "/".
type model map[string]string

func (m model) removeBelow(name string) {
	maps.DeleteFunc(m, func(has, _ string) bool { return strings.HasPrefix(has, name+"/") && has != name+"/" })
}

func (m model) remove(name string) {
	m.removeBelow(name)
	delete(m, name)
	delete(m, name+"/")
}

func (m model) put(name, content string, isDir bool) {
	for parent := path.Dir(name); parent != "/"; parent = path.Dir(parent) {
		delete(m, parent)
		m[parent+"/"] = ""
	}
	if isDir {
		delete(m, name)
		m[name+"/"] = ""
		return
	}
	m.remove(name)
	m[name] = content
}

// step is an entry of a random layer.
type step struct {
	name, content           string
	isDir, whiteout, opaque bool
}

func randomLayer(random *rand.Rand) []step {
	var steps []step
	for n := range random.IntN(12) {
		name := ""
		for range 1 + random.IntN(3) {
			name += "/" + string(rune('a'+random.IntN(3)))
		}
		each := step{name: name, content: fmt.Sprint(n, random.Uint32())}
		switch random.IntN(6) {
		case 0:
			each.isDir = true
		case 1:
			each.whiteout = true
		case 2:
			each.opaque = true
		}
		steps = append(steps, each)
	}
	return steps
}

// apply takes away from the layers below first, wherever in the layer that is said.
func (m model) apply(steps []step) {
	for _, each := range steps {
		if each.whiteout {
			m.remove(each.name)
		}
		if each.opaque {
			m.removeBelow(each.name)
		}
	}
	for _, each := range steps {
		if !each.whiteout && !each.opaque {
			m.put(each.name, each.content, each.isDir)
		}
	}
}

func archived(t *testing.T, steps []step) []byte {
	t.Helper()
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, each := range steps {
		header := &tar.Header{Name: each.name[1:], Typeflag: tar.TypeReg, Size: int64(len(each.content))}
		switch {
		case each.isDir:
			header.Typeflag, header.Size = tar.TypeDir, 0
		case each.whiteout:
			header.Name, header.Size = path.Join(path.Dir(header.Name), ".wh."+path.Base(header.Name)), 0
		case each.opaque:
			header.Name, header.Size = header.Name+"/.wh..wh..opq", 0
		}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			if _, err := archive.Write([]byte(each.content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// TestMergesAreAsTheModelSays applies random layers.
func TestMergesAreAsTheModelSays(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		want := model{"/": ""}
		var layers [][]byte
		var all [][]step
		for range 1 + random.IntN(4) {
			steps := randomLayer(random)
			want.apply(steps)
			layers, all = append(layers, archived(t, steps)), append(all, steps)
		}
		got, err := merge(t, layers...)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, map[string]string(want)) {
			t.Fatalf("seed %d: %+v\nmade %q\nwant %q", seed, all, got, want)
		}
	}
}

// FuzzLayers applies whatever bytes as layers. They may be refused, and what is taken
// can be read.
func FuzzLayers(f *testing.F) {
	for seed := range uint64(4) {
		var t testing.T
		f.Add(archived(&t, randomLayer(rand.New(rand.NewPCG(seed, 2)))))
	}
	var links bytes.Buffer
	archive := tar.NewWriter(&links)
	for _, header := range []tar.Header{
		{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../x"}, {Name: "l/f", Typeflag: tar.TypeFifo}, {Name: "h", Typeflag: tar.TypeLink, Linkname: "x/f"},
	} {
		_ = archive.WriteHeader(&header)
	}
	_ = archive.Close()
	f.Add(links.Bytes())
	f.Fuzz(func(t *testing.T, layer []byte) {
		// The same twice: the second time finds everything there already.
		_, _ = merge(t, layer, layer)
	})
}

// TestTooMuch brings a tree to its limits, which a test cannot reach from below.
func TestTooMuch(t *testing.T) {
	layer := archived(t, []step{{name: "/a/b", content: "1"}, {name: "/c", content: "2"}})
	for want, exhaust := range map[string]func(*tree){
		"more than 1048576 files":   func(full *tree) { full.entries = mostEntries - 2 },
		"names have more than":      func(full *tree) { full.text = mostText - 2 },
		"files have more than 0 Gi": func(full *tree) { full.most = 1 },
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		full := newTree(erofs.NewWriter(file))
		exhaust(full)
		if err := full.apply(t.Context(), bytes.NewReader(layer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	endless := &limitedReader{from: bytes.NewReader(make([]byte, 100)), left: 99}
	if _, err := io.Copy(io.Discard, endless); err == nil || !strings.Contains(err.Error(), "uncompressed") {
		t.Errorf("a layer that does not end: %v", err)
	}
}
