//go:build linux

package transfer

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEveryByteInNames: a name is bytes, of which only two are impossible. It is
// for Linux, since other systems demand UTF-8.
func TestEveryByteInNames(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), t.TempDir()
	for b := 1; b < 256; b++ {
		if b == '/' {
			continue
		}
		name := "n" + string([]byte{byte(b)})
		write(t, filepath.Join(src, name), name)
		write(t, filepath.Join(src, "long", strings.Repeat(string([]byte{byte(b)}), 254)+"n"), name)
		symlink(t, name, filepath.Join(src, "link"+name))
		symlink(t, strings.Repeat(name, 100), filepath.Join(src, "longlink"+name))
	}
	if _, _, err := roundTrip(t, src, dst, "c\xff\ncopy", PackOptions{}); err != nil {
		t.Fatal(err)
	}
	if want, got := snapshot(t, src), snapshot(t, filepath.Join(dst, "c\xff\ncopy")); got != want {
		t.Error("the copy differs from its source")
	}
}

// TestGrowingVirtualFile: files of /proc have no size of their own.
func TestGrowingVirtualFile(t *testing.T) {
	_, _, err := roundTrip(t, "/proc/self/status", t.TempDir(), "copy", PackOptions{})
	if ClassOf(err) != ClassChanged {
		t.Errorf("error = %v", err)
	}
}

// TestKillLeavesNothing: while a file is being written it has no name, so that a
// process that is killed then leaves nothing beside the destination.
func TestKillLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	probe, err := os.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, 0o600)
	if err != nil {
		t.Skipf("the file system of %s knows only files with names: %v", dir, err)
	}
	probe.Close()
	prepare(t, dir, "old")
	for _, name := range []string{"old", "new"} {
		before := namesIn(t, dir)
		err := WriteFileAtomic(filepath.Join(dir, name), 0o644, epoch, func(w io.Writer) error {
			if _, err := w.Write([]byte("half")); err != nil {
				return err
			}
			if during := namesIn(t, dir); !slices.Equal(during, before) {
				t.Errorf("while %s is written the directory holds %q", name, during)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if names := namesIn(t, dir); !slices.Equal(names, []string{"new", "old"}) {
		t.Errorf("the directory holds %q", names)
	}
}
