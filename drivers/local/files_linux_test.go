package local_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestFileRoundTrip(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create()
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		big := make([]byte, 8<<20)
		if _, err := rand.Read(big); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"plain", "with space", "quote'\"`", "$HOME;rm", "new\nline", "-rf", "ünï", "bytes\xff\xfe", strings.Repeat("n", 255), "deep/er/est"} {
			if err := f.WriteFile(f.ctx(), ref, name, 0o640, bytes.NewReader(every)); err != nil {
				t.Errorf("write %q: %v", name, err)
				continue
			}
			if got := f.read(ref, name); !bytes.Equal(got, every) {
				t.Errorf("%q came back as %d bytes", name, len(got))
			}
		}
		for _, content := range [][]byte{big, {}, []byte("short")} {
			if err := f.WriteFile(f.ctx(), ref, "/tmp/file", 0o755, bytes.NewReader(content)); err != nil {
				t.Fatal(err)
			}
			if got := f.read(ref, "/tmp/file"); sha256.Sum256(got) != sha256.Sum256(content) {
				t.Errorf("%d bytes came back as %d", len(content), len(got))
			}
		}
		info, err := f.Stat(f.ctx(), ref, "/tmp/file", false)
		if err != nil || info.Name != "file" || info.Kind != plugin.FileRegular || info.Size != 5 || info.Mode != 0o755 || time.Since(info.ModTime) > time.Minute {
			t.Errorf("stat: %+v, %v", info, err)
		}
	})
}

func (f *fixture) read(ref plugin.Ref, path string) []byte {
	f.t.Helper()
	var content bytes.Buffer
	if err := f.ReadFile(f.ctx(), ref, path, 0, &content); err != nil {
		f.t.Errorf("read %q: %v", path, err)
	}
	return content.Bytes()
}

func TestFileErrors(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	f.exec(ref, shell("cd /tmp; mkdir dir; ln -s dir todir; mkfifo fifo; head -c 500 /dev/zero >five; ln -s loop loop; ln -s /nowhere dangling"))
	read := func(path string, limit int64) error {
		return f.ReadFile(f.ctx(), ref, path, limit, io.Discard)
	}
	write := func(path string) error {
		return f.WriteFile(f.ctx(), ref, path, 0o644, strings.NewReader("x"))
	}
	list := func(path string) error {
		_, err := f.ReadDir(f.ctx(), ref, path)
		return err
	}
	for name, test := range map[string]struct {
		err    error
		reason plugin.PathReason
	}{
		"read missing":          {read("/tmp/nope", 0), plugin.PathMissing},
		"read below a file":     {read("/tmp/five/x", 0), plugin.PathNotDirectory},
		"read a directory":      {read("/tmp/dir", 0), plugin.PathIsDirectory},
		"read a directory link": {read("/tmp/todir", 0), plugin.PathIsDirectory},
		"read a FIFO":           {read("/tmp/fifo", 0), plugin.PathNotRegular},
		"read a device":         {read("/dev/zero", 0), plugin.PathNotRegular},
		"read a loop":           {read("/tmp/loop", 0), plugin.PathInvalid},
		"read nothing":          {read("", 0), plugin.PathInvalid},
		"read NUL":              {read("/tmp/a\x00b", 0), plugin.PathInvalid},
		"read a long name":      {read("/tmp/"+strings.Repeat("n", 256), 0), plugin.PathInvalid},
		"write a directory":     {write("/tmp/dir"), plugin.PathIsDirectory},
		"write a FIFO":          {write("/tmp/fifo"), plugin.PathNotRegular},
		"write below a file":    {write("/tmp/five/x"), plugin.PathNotDirectory},
		"write read-only":       {write("/sys/kernel/x"), plugin.PathReadOnly},
		"list a file":           {list("/tmp/five"), plugin.PathNotDirectory},
		"list missing":          {list("/tmp/nope"), plugin.PathMissing},
	} {
		var typed *plugin.Error
		if !errors.As(test.err, &typed) || typed.Kind != plugin.KindPath || typed.PathReason != test.reason {
			t.Errorf("%s: %v (%+v), want reason %s", name, test.err, typed, test.reason)
		}
	}
	var large *plugin.Error
	if err := read("/tmp/five", 100); !errors.As(err, &large) || large.Kind != plugin.KindTooLarge || large.Size != 500 || large.Limit != 100 {
		t.Errorf("read over the limit: %v", err)
	}
	if err := read("/tmp/five", 500); err != nil {
		t.Errorf("read at the limit: %v", err)
	}
	if err := read("/proc/self/status", 10); plugin.KindOf(err) != plugin.KindTooLarge {
		t.Errorf("read a file that hides its size: %v", err)
	}
}

func TestWrite(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	f.exec(ref, shell("cd /tmp; printf old >target; chmod 604 target; chown 7:8 target; ln -s target link; ln -s new dangling"))
	for _, path := range []string{"/tmp/link", "/tmp/dangling"} {
		if err := f.WriteFile(f.ctx(), ref, path, 0o640, strings.NewReader("content")); err != nil {
			t.Fatal(err)
		}
	}
	want := "target 604 7 8 content\nnew 640 0 0 content\nlink symbolic link\ndangling symbolic link\n"
	got := f.exec(ref, shell("cd /tmp; for f in target new; do echo $(stat -c '%n %a %u %g' $f) $(cat $f); done; stat -c '%n %F' link dangling")).stdout
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	// A reader that fails, and a caller that gives up, leave what was there.
	broken := io.MultiReader(strings.NewReader("half"), errorReader{})
	if err := f.WriteFile(f.ctx(), ref, "/tmp/target", 0o640, broken); err == nil {
		t.Error("a broken upload succeeded")
	}
	ctx, cancel := context.WithCancel(f.ctx())
	err := f.WriteFile(ctx, ref, "/tmp/target", 0o640, io.MultiReader(bytes.NewReader(make([]byte, 3<<20)), readerFunc(func([]byte) (int, error) {
		cancel()
		<-ctx.Done()
		return 0, ctx.Err()
	})))
	if err == nil {
		t.Error("a canceled upload succeeded")
	}
	waitFor(t, "the uploads' end", func() bool {
		return f.exec(ref, shell("cd /tmp; ls -A | tr '\n' ' '; cat target")).stdout == "dangling link new target content"
	})
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("the disk is on fire") }

type readerFunc func([]byte) (int, error)

func (r readerFunc) Read(p []byte) (int, error) { return r(p) }

func TestReadDir(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	f.exec(ref, shell(`mkdir -p /tmp/d/sub /tmp/empty /tmp/many; cd /tmp/d; echo x >.hidden; ln -s /nowhere link; : >'new
line'; mkfifo fifo; ln -s /tmp/d /tmp/tod; cd /tmp/many; seq 20000 | xargs touch`))
	entries, err := f.ReadDir(f.ctx(), ref, "/tmp/tod")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name+"="+string(entry.Kind)+entry.LinkTarget)
	}
	slices.Sort(got)
	if want := []string{".hidden=file", "fifo=other", "link=symlink/nowhere", "new\nline=file", "sub=directory"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if entries, err := f.ReadDir(f.ctx(), ref, "/tmp/empty"); err != nil || len(entries) != 0 {
		t.Errorf("an empty directory: %v, %v", entries, err)
	}
	if entries, err := f.ReadDir(f.ctx(), ref, "/tmp/many"); err != nil || len(entries) != 20_000 {
		t.Errorf("a large directory: %d entries, %v", len(entries), err)
	}
}

func TestArchive(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create()
		f.exec(ref, shell(`mkdir -p /tmp/src/.git /tmp/src/empty; cd /tmp/src; echo a >a; chmod 4555 a; ln a hard; ln -s a soft; ln -s /nowhere dangling
echo b >'.git/b
c'; chmod 500 .git; touch -d @1000000000 a .git`))
		var archive bytes.Buffer
		if err := f.GetArchive(f.ctx(), ref, "/tmp/src", false, &archive); err != nil {
			t.Fatal(err)
		}
		if err := f.PutArchive(f.ctx(), ref, "/tmp/copy/of", bytes.NewReader(archive.Bytes())); err != nil {
			t.Fatal(err)
		}
		describe := `cd %s && find . -printf '%%P %%y %%m %%l\n' | sort && stat -c '%%n %%Y %%h' a .git && cat a soft .git/*`
		want := f.exec(ref, shell(strings.ReplaceAll(strings.ReplaceAll(describe, "%s", "/tmp/src"), "%%", "%")))
		got := f.exec(ref, shell(strings.ReplaceAll(strings.ReplaceAll(describe, "%s", "/tmp/copy/of/src"), "%%", "%")))
		if got.stdout != want.stdout || got.stderr != "" {
			t.Errorf("got\n%s%s\nwant\n%s", got.stdout, got.stderr, want.stdout)
		}

		var followed bytes.Buffer
		if err := f.GetArchive(f.ctx(), ref, "/tmp/src", true, &followed); err != nil {
			t.Fatal(err)
		}
		kinds := map[string]byte{}
		for entries := tar.NewReader(&followed); ; {
			header, err := entries.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			kinds[header.Name] = header.Typeflag
		}
		if kinds["src/soft"] != tar.TypeReg || kinds["src/dangling"] != tar.TypeSymlink || kinds["src/hard"] != tar.TypeReg {
			t.Errorf("with links followed: %q", kinds)
		}
	})
}

func TestArchiveErrors(t *testing.T) {
	f := startDriver(t, 0)
	ref := f.create()
	f.exec(ref, shell("mkdir /tmp/loop /tmp/isdir; ln -s /tmp/loop /tmp/loop/again; echo f >/tmp/file"))
	if err := f.GetArchive(f.ctx(), ref, "/tmp/nope", false, io.Discard); plugin.KindOf(err) != plugin.KindPath {
		t.Errorf("get missing: %v", err)
	}
	if err := f.GetArchive(f.ctx(), ref, "/tmp/loop", true, io.Discard); plugin.KindOf(err) != plugin.KindPath {
		t.Errorf("get a loop: %v", err)
	}
	if err := f.PutArchive(f.ctx(), ref, "/tmp/file", archiveOf(tar.Header{Name: "x", Typeflag: tar.TypeReg})); plugin.KindOf(err) != plugin.KindPath {
		t.Errorf("put into a file: %v", err)
	}
	for name, header := range map[string]tar.Header{
		"climbing":     {Name: "../x", Typeflag: tar.TypeReg},
		"absolute":     {Name: "/etc/x", Typeflag: tar.TypeReg},
		"device":       {Name: "x", Typeflag: tar.TypeChar},
		"link outside": {Name: "x", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"},
	} {
		if err := f.PutArchive(f.ctx(), ref, "/tmp/isdir", archiveOf(header)); plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	cut := io.LimitReader(archiveOf(tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 1 << 20}), 5000)
	if err := f.PutArchive(f.ctx(), ref, "/tmp/isdir", cut); plugin.KindOf(err) != plugin.KindInvalid {
		t.Errorf("cut: %v", err)
	}
	if left := f.exec(ref, shell("ls -A /tmp/isdir")).stdout; left != "" {
		t.Errorf("left behind: %q", left)
	}
}

func archiveOf(header tar.Header) io.Reader {
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	_ = out.WriteHeader(&header)
	_, _ = out.Write(make([]byte, header.Size))
	_ = out.Close()
	return &archive
}
