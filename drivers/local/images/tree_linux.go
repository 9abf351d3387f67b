package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/sandboxctl/sandboxctl/drivers/local/images/erofs"
)

// What an image may have. Each limit is well above the largest public images and keeps
// a hostile one from filling memory or disk.
const (
	// mostEntries bounds memory: an entry takes about 600 bytes while an image is made.
	mostEntries = 1 << 20
	// mostBytes is of all files together, also of those that a later layer replaces.
	mostBytes = 64 << 30
	// mostText is of all names and link targets together, in bytes.
	mostText = 256 << 20
	// deepest is how many directories may be in one another: Linux knows no longer path.
	deepest = 2048
	// longestPath is Linux's limit, in bytes.
	longestPath = 4096
	// mostLinks is how many symbolic links may be on the way to an entry, as in Linux.
	mostLinks = 40
)

// tree is what the layers come to so far. Only the content of files is on disk, in the
// image that is being made; everything else is in memory, and nothing of a layer ever
// becomes a file of the host.
type tree struct {
	root    *erofs.Node
	content *erofs.Writer
	entries int
	bytes   uint64
	text    int
	// most is mostBytes but in tests.
	most uint64
	// fresh holds what the layer that is being applied has made: whiteouts are about
	// the layers below only.
	fresh map[entry]bool
}

// entry is a name in a directory.
type entry struct {
	directory *erofs.Node
	name      string
}

func newTree(content *erofs.Writer) *tree {
	return &tree{root: erofs.NewDirectory(0o755), content: content, most: mostBytes}
}

// apply adds a layer, a tar stream, on top of what there is.
func (t *tree) apply(ctx context.Context, layer io.Reader) error {
	t.fresh = map[entry]bool{}
	archive := tar.NewReader(layer)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := t.add(header, &cancelable{ctx, archive}); err != nil {
			return err
		}
	}
}

// cancelable is for files that are long without much in the layer: sparse ones.
type cancelable struct {
	ctx  context.Context
	from io.Reader
}

func (c *cancelable) Read(data []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.from.Read(data)
}

// add puts one entry of a layer into the tree.
func (t *tree) add(header *tar.Header, content io.Reader) error {
	parts, err := splitName(header.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if header.Typeflag != tar.TypeDir {
			return fmt.Errorf("its root is not a directory")
		}
		return dress(t.root, header)
	}
	parents, name := parts[:len(parts)-1], parts[len(parts)-1]
	if strings.HasPrefix(name, whiteout) {
		return t.takeAway(parents, name, header.Name)
	}
	directory, err := t.walk(parents, true)
	if err != nil {
		return fmt.Errorf("%q: %w", header.Name, err)
	}
	node, err := t.node(directory.Children[name], header, content)
	if err != nil {
		return err
	}
	if node == nil {
		delete(directory.Children, name)
		return nil
	}
	return t.put(directory, name, node)
}

// put gives a node a name, which it takes from whatever had it.
func (t *tree) put(directory *erofs.Node, name string, node *erofs.Node) error {
	if directory.Children[name] != node {
		t.entries++
		t.text += len(name) + len(node.Target)
	}
	if t.entries > mostEntries {
		return fmt.Errorf("it has more than %d files", mostEntries)
	}
	if t.text > mostText {
		return fmt.Errorf("its names have more than %d MiB", mostText>>20)
	}
	directory.Children[name] = node
	t.fresh[entry{directory, name}] = true
	return nil
}

// node returns what a header describes, or nothing for what is left out: devices. The
// guest has its own in /dev.
func (t *tree) node(existing *erofs.Node, header *tar.Header, content io.Reader) (*erofs.Node, error) {
	fresh := &erofs.Node{}
	switch header.Typeflag {
	case tar.TypeDir:
		if existing != nil && existing.IsDirectory() {
			return existing, dress(existing, header)
		}
		fresh = erofs.NewDirectory(0)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		fresh.Mode = erofs.TypeRegular
		if err := t.fill(fresh, header, content); err != nil {
			return nil, err
		}
	case tar.TypeSymlink:
		fresh.Mode, fresh.Target = erofs.TypeSymlink, header.Linkname
		if fresh.Target == "" || len(fresh.Target) > erofs.MaxTarget || strings.Contains(fresh.Target, "\x00") {
			return nil, fmt.Errorf("the symbolic link %q has no possible target", header.Name)
		}
	case tar.TypeFifo:
		fresh.Mode = erofs.TypeFIFO
	case tar.TypeLink:
		return t.linked(header)
	case tar.TypeChar, tar.TypeBlock:
		return nil, nil
	default:
		return nil, fmt.Errorf("the entry %q is of a kind, %q, that images do not have", header.Name, header.Typeflag)
	}
	return fresh, dress(fresh, header)
}

func (t *tree) fill(file *erofs.Node, header *tar.Header, content io.Reader) (err error) {
	size := uint64(max(header.Size, 0))
	if t.bytes += size; t.bytes > t.most || size > t.most {
		return fmt.Errorf("its files have more than %d GiB", t.most>>30)
	}
	if file.Data, err = t.content.Add(content, size); err != nil {
		return fmt.Errorf("the file %q: %w", header.Name, err)
	}
	return nil
}

// linked returns the file that a hard link is another name of.
func (t *tree) linked(header *tar.Header) (*erofs.Node, error) {
	parts, err := splitName(header.Linkname)
	if err != nil {
		return nil, err
	}
	missing := fmt.Errorf("%q is a hard link to %q, which is no file of the image", header.Name, header.Linkname)
	if len(parts) == 0 {
		return nil, missing
	}
	directory, err := t.walk(parts[:len(parts)-1], false)
	if err != nil || directory == nil {
		return nil, missing
	}
	target := directory.Children[parts[len(parts)-1]]
	if target == nil || target.IsDirectory() {
		return nil, missing
	}
	return target, nil
}

// dress gives a node the owner, mode and time that a header says.
func dress(node *erofs.Node, header *tar.Header) error {
	if header.Uid < 0 || header.Gid < 0 || int64(header.Uid) >= math.MaxUint32 || int64(header.Gid) >= math.MaxUint32 {
		return fmt.Errorf("%q has an impossible owner, %d:%d", header.Name, header.Uid, header.Gid)
	}
	node.Mode = node.Mode&erofs.TypeMask | uint16(header.Mode&0o7777)
	node.UID, node.GID = uint32(header.Uid), uint32(header.Gid)
	node.Seconds, node.Nanoseconds = 0, 0
	if seconds := header.ModTime.Unix(); seconds > 0 {
		node.Seconds, node.Nanoseconds = uint64(seconds), uint32(header.ModTime.Nanosecond())
	}
	return nil
}
