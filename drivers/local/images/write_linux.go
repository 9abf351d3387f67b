package images

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/drivers/local/images/erofs"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// write makes the image out of its layers in an empty file.
func (c *content) write(ctx context.Context, file *os.File, progress Progress) error {
	writer := erofs.NewWriter(file)
	result := newTree(writer)
	tell := c.progress(progress)
	for i, layer := range c.layers {
		if err := layer.apply(ctx, result, tell); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(c.layers), err)
		}
	}
	if err := result.prepare(); err != nil {
		return err
	}
	err := writer.Unused(result.root, func(offset, size int64) error {
		// Where the file system cannot do that, the image is only larger.
		_ = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, size)
		return nil
	})
	if err != nil {
		return err
	}
	if err := writer.Finish(result.root); err != nil {
		return err
	}
	return file.Sync()
}

// progressEvery is how often progress is told.
const progressEvery = 100 * time.Millisecond

// progress adds up what was read of all layers.
func (c *content) progress(progress Progress) func(n int) {
	told := plugin.Progress{Message: "pulling " + c.display}
	for _, layer := range c.layers {
		told.Total += uint64(max(layer.size, 0))
	}
	var last time.Time
	return func(n int) {
		told.Current = min(told.Current+uint64(n), told.Total)
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			progress(told)
		}
	}
}

// wantedDirectories have to be there for what is mounted on them and, the last, for
// programs. Whatever an image has in their place is replaced but for the last.
var wantedDirectories = []struct {
	name        string
	permissions uint16
	keep        bool
}{
	{"proc", 0o755, false}, {"dev", 0o755, false}, {"sys", 0o755, false}, {"tmp", 0o1777, true},
}

// wantedFiles are the guest's own, whatever an image has under these names. The
// resolver is the address at which a sandbox's network answers; without a network
// there is no way to it.
var wantedFiles = map[string]string{
	"hosts":       "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
	"hostname":    "sandbox\n",
	"resolv.conf": "nameserver 192.0.0.1\n",
}

// prepare adds what a sandbox needs of its root.
func (t *tree) prepare() error {
	for _, wanted := range wantedDirectories {
		existing := t.root.Children[wanted.name]
		if existing == nil || !existing.IsDirectory() && !wanted.keep {
			t.root.Children[wanted.name] = erofs.NewDirectory(wanted.permissions)
		}
	}
	// The guest helper is mounted on an empty file.
	helper := erofs.NewDirectory(0o755)
	helper.Children[path.Base(guest.Path)] = &erofs.Node{Mode: erofs.TypeRegular | 0o755}
	t.root.Children[path.Base(path.Dir(guest.Path))] = helper
	t.fresh = map[entry]bool{}
	etc, err := t.walk([]string{"etc"}, true)
	if err != nil {
		return fmt.Errorf("its /etc: %w", err)
	}
	for name, text := range wantedFiles {
		file := &erofs.Node{Mode: erofs.TypeRegular | 0o644}
		if file.Data, err = t.content.AddBytes([]byte(text)); err != nil {
			return err
		}
		etc.Children[name] = file
	}
	if etc.Children["mtab"] == nil {
		// As docker does, for programs that look for file systems there.
		etc.Children["mtab"] = &erofs.Node{Mode: erofs.TypeSymlink | 0o777, Target: "/proc/mounts"}
	}
	return nil
}
