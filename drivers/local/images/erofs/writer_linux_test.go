package erofs_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	reader "gvisor.dev/gvisor/pkg/erofs"

	"github.com/sandboxctl/sandboxctl/drivers/local/images/erofs"
)

// image is one that is being made in a test, and what its files hold.
type image struct {
	t        testing.TB
	file     *os.File
	writer   *erofs.Writer
	contents map[*erofs.Node][]byte
}

func newImage(t testing.TB) *image {
	file, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &image{t, file, erofs.NewWriter(file), map[*erofs.Node][]byte{}}
}

func (i *image) regular(content []byte) *erofs.Node {
	i.t.Helper()
	data, err := i.writer.AddBytes(content)
	if err != nil {
		i.t.Fatal(err)
	}
	node := &erofs.Node{Mode: erofs.TypeRegular | 0o644, Data: data}
	i.contents[node] = content
	return node
}

// check finishes the image and compares it with the tree, as gVisor sees it.
func (i *image) check(root *erofs.Node) {
	i.t.Helper()
	err := i.writer.Unused(root, func(offset, size int64) error {
		_, err := i.file.WriteAt(bytes.Repeat([]byte("unused"), int(size/6)), offset)
		return err
	})
	if err != nil {
		i.t.Fatal(err)
	}
	if err := i.writer.Finish(root); err != nil {
		i.t.Fatal(err)
	}
	again, err := os.Open(i.file.Name())
	if err != nil {
		i.t.Fatal(err)
	}
	opened, err := reader.OpenImage(again)
	if err != nil {
		i.t.Fatalf("gVisor does not open the image: %v", err)
	}
	defer opened.Close()
	names := map[*erofs.Node]uint32{}
	count(root, names)
	i.compare(opened, opened.RootNid(), opened.RootNid(), root, "", names)
}

// count finds out how many names each node has.
func count(node *erofs.Node, names map[*erofs.Node]uint32) {
	for _, child := range node.Children {
		names[child]++
		count(child, names)
	}
}

func (i *image) compare(opened *reader.Image, nid, parent uint64, want *erofs.Node, path string, names map[*erofs.Node]uint32) {
	i.t.Helper()
	inode, err := opened.Inode(nid)
	if err != nil {
		i.t.Fatalf("%q: %v", path, err)
	}
	if inode.Mode() != want.Mode || inode.UID() != want.UID || inode.GID() != want.GID || inode.Mtime() != want.Seconds || inode.MtimeNsec() != want.Nanoseconds {
		i.t.Fatalf("%q is mode %o, owner %d:%d, time %d; want %+v", path, inode.Mode(), inode.UID(), inode.GID(), inode.Mtime(), want)
	}
	links := names[want]
	switch {
	case want.IsDirectory():
		links = 2
		for _, child := range want.Children {
			if child.IsDirectory() {
				links++
			}
		}
		i.compareDirectory(opened, nid, parent, want, path, names)
	case want.IsSymlink():
		if target, err := inode.Readlink(); err != nil || target != want.Target {
			i.t.Fatalf("%q leads to %q (%v), want %q", path, target, err, want.Target)
		}
	case want.IsRegular():
		i.compareContent(inode, want, path)
	}
	if inode.Nlink() != links {
		i.t.Fatalf("%q has %d links, want %d", path, inode.Nlink(), links)
	}
}

func (i *image) compareContent(inode reader.Inode, want *erofs.Node, path string) {
	i.t.Helper()
	// Programs are mapped into memory, which needs this layout.
	if _, err := inode.DataOffset(); err != nil {
		i.t.Fatalf("%q cannot be mapped: %v", path, err)
	}
	ranges, err := inode.DataRanges()
	if err != nil {
		i.t.Fatalf("%q: %v", path, err)
	}
	if !bytes.Equal(ranges[0].Bytes, i.contents[want]) {
		i.t.Fatalf("%q has another content of %d bytes", path, len(ranges[0].Bytes))
	}
}

func (i *image) compareDirectory(opened *reader.Image, nid, parent uint64, want *erofs.Node, path string, names map[*erofs.Node]uint32) {
	i.t.Helper()
	inode, _ := opened.Inode(nid)
	children := map[string]uint64{}
	var order []string
	err := inode.IterDirents(func(name string, _ uint8, nid uint64) error {
		children[name] = nid
		order = append(order, name)
		return nil
	})
	if err != nil {
		i.t.Fatalf("%q: %v", path, err)
	}
	if !slices.IsSorted(order) || len(order) != len(children) {
		i.t.Fatalf("the entries of %q are not in order: %q", path, order)
	}
	if children["."] != nid || children[".."] != parent {
		i.t.Fatalf("%q has . %d and .. %d, want %d and %d", path, children["."], children[".."], nid, parent)
	}
	delete(children, ".")
	delete(children, "..")
	got, wanted := slices.Sorted(maps.Keys(children)), slices.Sorted(maps.Keys(want.Children))
	if !slices.Equal(got, wanted) {
		i.t.Fatalf("%q has %q, want %q", path, got, wanted)
	}
	for name, child := range want.Children {
		if found, err := inode.Lookup(name); err != nil || found != children[name] {
			i.t.Fatalf("%q is not found in %q: %v", name, path, err)
		}
		i.compare(opened, children[name], nid, child, path+"/"+name, names)
	}
}

func TestEverythingComesBack(t *testing.T) {
	made := newImage(t)
	root := erofs.NewDirectory(0o755)
	program := made.regular(bytes.Repeat([]byte{1, 2, 3}, 100_000))
	program.Mode, program.UID, program.GID = erofs.TypeRegular|0o6755, 1000, 4_000_000_000
	program.Seconds, program.Nanoseconds = 1_700_000_000, 999_999_999
	bin := erofs.NewDirectory(0o1777)
	bin.Children["program"], bin.Children["same"] = program, program
	replaced := made.regular([]byte("replaced by a later layer"))
	delete(made.contents, replaced)
	root.Children["bin"] = bin
	root.Children["-first"] = made.regular(nil)
	root.Children["+"] = made.regular(make([]byte, 1<<20))
	root.Children["not\xff\xfeUTF-8\n"] = made.regular([]byte("x"))
	root.Children["fifo"] = &erofs.Node{Mode: erofs.TypeFIFO | 0o600}
	root.Children[strings.Repeat("n", erofs.MaxName)] = made.regular(bytes.Repeat([]byte("y"), 4096))
	for _, length := range []int{1, 4031, 4032, 4033, erofs.MaxTarget} {
		root.Children[fmt.Sprintf("link%d", length)] = &erofs.Node{Mode: erofs.TypeSymlink | 0o777, Target: strings.Repeat("t", length)}
	}
	large := erofs.NewDirectory(0o700)
	for n := range 5000 {
		large.Children[fmt.Sprintf("%d-%s", n, strings.Repeat("x", n%200))] = made.regular(fmt.Append(nil, n))
	}
	root.Children["large"] = large
	deep := root
	for range 300 {
		deep.Children["deeper"] = erofs.NewDirectory(0o755)
		deep = deep.Children["deeper"]
	}
	made.check(root)
}

func TestAnEmptyImage(t *testing.T) {
	newImage(t).check(erofs.NewDirectory(0o755))
}

func TestContentThatIsCutShort(t *testing.T) {
	made := newImage(t)
	if _, err := made.writer.Add(strings.NewReader("abc"), 4); err != io.ErrUnexpectedEOF {
		t.Errorf("a file that is cut short: %v", err)
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	twice := erofs.NewDirectory(0o755)
	for what, child := range map[string]map[string]*erofs.Node{
		"a name":     {strings.Repeat("n", 256): {Mode: erofs.TypeFIFO}},
		"no name":    {"": {Mode: erofs.TypeFIFO}},
		"a target":   {"l": {Mode: erofs.TypeSymlink, Target: strings.Repeat("t", 4096)}},
		"no target":  {"l": {Mode: erofs.TypeSymlink}},
		"two places": {"a": twice, "b": twice},
	} {
		root := erofs.NewDirectory(0o755)
		root.Children = child
		if err := newImage(t).writer.Finish(root); err == nil {
			t.Errorf("%s was written", what)
		}
	}
	if err := newImage(t).writer.Finish(&erofs.Node{Mode: erofs.TypeRegular}); err == nil {
		t.Error("a file was written as the root")
	}
}

// FuzzTrees writes trees that are made from a seed.
func FuzzTrees(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint16(20<<seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, nodes uint16) {
		made := newImage(t)
		made.check(made.random(rand.New(rand.NewPCG(seed, 0)), int(nodes%4096)))
	})
}

func (i *image) random(random *rand.Rand, nodes int) *erofs.Node {
	root := erofs.NewDirectory(uint16(random.UintN(0o10000)))
	directories := []*erofs.Node{root}
	var files []*erofs.Node
	for range nodes {
		node := &erofs.Node{Mode: erofs.TypeFIFO}
		switch random.IntN(5) {
		case 0:
			node = erofs.NewDirectory(0)
			directories = append(directories, node)
		case 1:
			node = &erofs.Node{Mode: erofs.TypeSymlink, Target: strings.Repeat("t", 1+random.IntN(erofs.MaxTarget))}
		case 2:
			if len(files) > 0 {
				node = files[random.IntN(len(files))]
			}
		default:
			node = i.regular(bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(3*4096)))
			files = append(files, node)
		}
		node.Mode |= uint16(random.UintN(0o10000))
		node.UID, node.GID, node.Seconds, node.Nanoseconds = random.Uint32(), random.Uint32(), random.Uint64(), random.Uint32()
		directories[random.IntN(len(directories))].Children[randomName(random)] = node
	}
	return root
}

func randomName(random *rand.Rand) string {
	name := make([]byte, 1+random.IntN(erofs.MaxName))
	for at := range name {
		name[at] = byte(1 + random.IntN(255))
	}
	name = bytes.ReplaceAll(name, []byte("/"), []byte("_"))
	if string(name) == "." || string(name) == ".." {
		return "dots"
	}
	return string(name)
}
