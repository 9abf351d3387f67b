//go:build linux

package modal_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestWriteAndRead(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, func(s *plugin.SandboxSpec) { s.Workdir = "/work" })
	big := bytes.Repeat([]byte("0123456789abcde\n"), 5<<16)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, test := range []struct {
		name, path string
		content    []byte
	}{
		{"all bytes", "/tmp/all", all},
		{"empty", "/tmp/empty", nil},
		{"beyond memory", "/tmp/big", big},
		{"missing parents", "/tmp/a/b/c", all},
		{"relative", "sub/file", all},
		{"odd name", "/tmp/-a b'\"\n$x;é", all},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := b.WriteFile(t.Context(), ref, test.path, 0o644, bytes.NewReader(test.content)); err != nil {
				t.Fatal(err)
			}
			var back bytes.Buffer
			if err := b.ReadFile(t.Context(), ref, test.path, 0, &back); err != nil || !bytes.Equal(back.Bytes(), test.content) {
				t.Errorf("%d bytes came back, %v", back.Len(), err)
			}
			info, err := b.Stat(t.Context(), ref, test.path, false)
			if err != nil || info.Size != int64(len(test.content)) || info.Mode != 0o644 || info.Kind != plugin.FileRegular {
				t.Errorf("stat: %+v, %v", info, err)
			}
		})
	}
	if got := b.shell(t, ref, "cat /work/sub/file | wc -c"); got.stdout != "256\n" {
		t.Errorf("the relative path went elsewhere: %+v", got)
	}
}

func TestModesSurviveWrites(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	write := func(path string, mode uint32) {
		t.Helper()
		if err := b.WriteFile(t.Context(), ref, path, mode, strings.NewReader("new")); err != nil {
			t.Fatal(err)
		}
	}
	write("/tmp/tool", 0o755)
	b.shell(t, ref, "cd /tmp; echo old >secret; chmod 600 secret; echo old >target; chmod 640 target; ln -s target link")
	write("/tmp/secret", 0o644)
	write("/tmp/link", 0o750)
	got := b.shell(t, ref, "cd /tmp; stat -c '%n %a %F' tool secret link target; cat target")
	want := "tool 755 regular file\nsecret 600 regular file\nlink 750 regular file\ntarget 640 regular file\nold\n"
	if got.stdout != want {
		t.Errorf("got\n%swant\n%s", got.stdout, want)
	}
}

func TestFailingReaderLeavesTheFile(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	b.shell(t, ref, "echo old >/tmp/f")
	broken := errors.New("disk on fire")
	for _, size := range []int64{10, 3 << 20} {
		content := io.MultiReader(io.LimitReader(zeroes{}, size), iotest.ErrReader(broken))
		if err := b.WriteFile(t.Context(), ref, "/tmp/f", 0o644, content); err == nil {
			t.Error("the write is reported as done")
		}
	}
	if got := b.shell(t, ref, "cat /tmp/f; ls -A /tmp"); got.stdout != "old\nf\n" {
		t.Errorf("got %q", got.stdout)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestUploadRemovesWhatAKilledDriverLeft(t *testing.T) {
	stateDir := t.TempDir()
	b := newBenchWith(t, setup{stateDir: stateDir})
	ref := b.create(t, nil)
	write := func() {
		t.Helper()
		if err := b.WriteFile(t.Context(), ref, "/tmp/large", 0, strings.NewReader(strings.Repeat("x", 2<<20))); err != nil {
			t.Fatal(err)
		}
	}
	write()
	stale, recent := filepath.Join(stateDir, "uploads", "stale"), filepath.Join(stateDir, "uploads", "recent")
	writeFile(t, stale, []byte("secret"))
	writeFile(t, recent, []byte("of another driver"))
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}
	write()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old upload is still there: %v", err)
	}
	if _, err := os.Stat(recent); err != nil {
		t.Errorf("another driver's upload is gone: %v", err)
	}
}

func TestStatAndList(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	b.shell(t, ref, `mkdir -p /d/sub && cd /d && touch .hidden 'new
line' && ln -s sub dirlink && ln -s ../d/.hidden filelink && ln -s none broken && ln -s loop loop && mkfifo pipe && chmod 1755 sub`)
	entries, err := b.ReadDir(t.Context(), ref, "/d")
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]plugin.FileKind)
	for _, entry := range entries {
		kinds[entry.Name] = entry.Kind
	}
	for name, kind := range map[string]plugin.FileKind{
		"sub": plugin.FileDirectory, ".hidden": plugin.FileRegular, "new\nline": plugin.FileRegular,
		"dirlink": plugin.FileSymlink, "filelink": plugin.FileSymlink, "broken": plugin.FileSymlink, "loop": plugin.FileSymlink, "pipe": plugin.FileOther,
	} {
		if kinds[name] != kind {
			t.Errorf("%q is a %q, want %q", name, kinds[name], kind)
		}
	}
	if len(entries) != 8 {
		t.Errorf("%d entries, want 8", len(entries))
	}
	if through, err := b.ReadDir(t.Context(), ref, "/d/dirlink"); err != nil || len(through) != 0 {
		t.Errorf("through a link: %v, %v", through, err)
	}
	link, err := b.Stat(t.Context(), ref, "/d/dirlink", false)
	if err != nil || link.Kind != plugin.FileSymlink || link.LinkTarget != "sub" || link.Name != "dirlink" {
		t.Errorf("link: %+v, %v", link, err)
	}
	target, err := b.Stat(t.Context(), ref, "/d/dirlink", true)
	if err != nil || target.Kind != plugin.FileDirectory || target.Mode != 0o1755 || target.Name != "dirlink" {
		t.Errorf("target: %+v, %v", target, err)
	}
	if file, err := b.Stat(t.Context(), ref, "/d/dirlink/../filelink", true); err != nil || file.Kind != plugin.FileRegular {
		t.Errorf("relative target: %+v, %v", file, err)
	}
}

func TestPathErrors(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	b.shell(t, ref, "mkdir /d; echo x >/f; ln -s loop /loop")
	stat := func(path string, follow bool) error { _, err := b.Stat(t.Context(), ref, path, follow); return err }
	list := func(path string) error { _, err := b.ReadDir(t.Context(), ref, path); return err }
	write := func(path string) error {
		return b.WriteFile(t.Context(), ref, path, 0o644, strings.NewReader("x"))
	}
	for name, test := range map[string]struct {
		err    error
		reason plugin.PathReason
	}{
		"stat a missing file":      {stat("/none", false), plugin.PathMissing},
		"stat below a file":        {stat("/f/x", false), plugin.PathNotDirectory},
		"stat a loop":              {stat("/loop", true), plugin.PathOther},
		"NUL":                      {stat("/a\x00b", false), plugin.PathInvalid},
		"too long":                 {stat("/"+strings.Repeat("x/", 3000), false), plugin.PathInvalid},
		"list a missing directory": {list("/none"), plugin.PathMissing},
		"list a file":              {list("/f"), plugin.PathNotDirectory},
		"write to a directory":     {write("/d"), plugin.PathIsDirectory},
		"write below a file":       {write("/f/x"), plugin.PathNotDirectory},
		"write to read-only":       {write("/usr/x"), plugin.PathPermission},
		"read a missing file":      {b.ReadFile(t.Context(), ref, "/none", 0, io.Discard), plugin.PathMissing},
		"read a directory":         {b.ReadFile(t.Context(), ref, "/d", 0, io.Discard), plugin.PathIsDirectory},
		"read a device":            {b.ReadFile(t.Context(), ref, "/dev/zero", 100, io.Discard), plugin.PathNotRegular},
	} {
		var typed *plugin.Error
		if !errors.As(test.err, &typed) || typed.Kind != plugin.KindPath || typed.PathReason != test.reason {
			t.Errorf("%s: got %+v (%v)", name, typed, test.err)
		}
	}
	var small bytes.Buffer
	b.shell(t, ref, "head -c 500 /dev/zero >/tmp/500")
	err := b.ReadFile(t.Context(), ref, "/tmp/500", 100, &small)
	var large *plugin.Error
	if !errors.As(err, &large) || large.Kind != plugin.KindTooLarge || large.Size != 500 || small.Len() > 100 {
		t.Errorf("a file beyond the limit: %v, %d bytes", err, small.Len())
	}
}

func TestTreesTravelAsTar(t *testing.T) {
	b := newBench(t)
	ref := b.create(t, nil)
	b.shell(t, ref, "mkdir -p /src/deep && cd /src && echo hi >deep/file && chmod 640 deep/file && ln -s deep/file link")
	var packed bytes.Buffer
	if err := b.GetArchive(t.Context(), ref, "/src", false, &packed); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, 4)
	for reader := tar.NewReader(bytes.NewReader(packed.Bytes())); ; {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimSuffix(header.Name, "/"))
	}
	if !strings.Contains(strings.Join(names, " "), "src/deep/file") {
		t.Errorf("packed: %q", names)
	}
	if err := b.PutArchive(t.Context(), ref, "/dst", &packed); err != nil {
		t.Fatal(err)
	}
	if got := b.shell(t, ref, "cd /dst/src; stat -c %a deep/file; readlink link; cat link"); got.stdout != "640\ndeep/file\nhi\n" {
		t.Errorf("unpacked: %+v", got)
	}
}
