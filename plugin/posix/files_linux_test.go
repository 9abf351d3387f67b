package posix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

var ref = plugin.Ref{ID: "sb-test"}

// awkward are names that break quoting, option parsing or decoding.
var awkward = []string{
	"plain", "with space", "-n", "--help", "-", "'", `"`, ";", "$HOME", "`id`", "\n", "a\nb\n", "*", "?", "[a]", `\`, `\n`, `\0101`, "%s",
	"\xff\xfe", "\x81\x82\x88", "\x01\x7f", "é", "#", "~", "a:b", "@x", "trailing ", " leading", "!", "&&", "(x)", "{a,b}", "...", ".hidden",
	strings.Repeat("n", 255),
}

func TestRoundTrip(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		big := make([]byte, 300<<10)
		rand.NewChaCha8([32]byte{}).Read(big)
		roundTrip := func(path string, content []byte) {
			t.Helper()
			if err := files.WriteFile(t.Context(), ref, path, 0, bytes.NewReader(content)); err != nil {
				t.Fatalf("write %q: %v", path, err)
			}
			onHost := path
			if !filepath.IsAbs(path) {
				onHost = g.dir + "/" + path
			}
			if there, err := os.ReadFile(onHost); err != nil || !bytes.Equal(there, content) {
				t.Fatalf("%q holds %d bytes, %v; want %d", path, len(there), err, len(content))
			}
			var back bytes.Buffer
			if err := files.ReadFile(t.Context(), ref, path, int64(len(content)), &back); err != nil || !bytes.Equal(back.Bytes(), content) {
				t.Fatalf("read %q: %d bytes, %v; want %d", path, back.Len(), err, len(content))
			}
		}
		for _, content := range [][]byte{big, all, {}, []byte("x"), []byte("no newline\x00"), []byte("\n\n")} {
			roundTrip("content", content)
		}
		os.Remove(g.dir + "/content")
		for _, name := range awkward {
			roundTrip(name, all)
			roundTrip(filepath.Join(g.dir, "new", name, name), []byte("x"))
			info, err := files.Stat(t.Context(), ref, name, false)
			if err != nil || info.Name != name || info.Kind != plugin.FileRegular || info.Size != 256 || info.Mode != 0o644 {
				t.Errorf("stat %q: %+v, %v", name, info, err)
			}
		}
		entries, err := files.ReadDir(t.Context(), ref, g.dir)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, entry := range entries {
			names[entry.Name] = true
		}
		for _, name := range awkward {
			if !names[name] {
				t.Errorf("%q is not listed", name)
			}
		}
		if len(entries) != len(awkward)+1 {
			t.Errorf("%d entries, want %d", len(entries), len(awkward)+1)
		}
	})
}

func TestReadBounds(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		os.WriteFile(g.dir+"/f", bytes.Repeat([]byte("x"), 500), 0o644)
		var told *plugin.Error
		var got bytes.Buffer
		err := files.ReadFile(t.Context(), ref, "f", 100, &got)
		if !errors.As(err, &told) || told.Kind != plugin.KindTooLarge || told.Size != 500 || told.Limit != 100 || got.Len() != 0 {
			t.Errorf("too large: %+v, %d bytes", err, got.Len())
		}
		if err := files.ReadFile(t.Context(), ref, "f", 500, &got); err != nil || got.Len() != 500 {
			t.Errorf("exactly the limit: %v, %d bytes", err, got.Len())
		}
		// A file that says it is empty and is not.
		got.Reset()
		err = files.ReadFile(t.Context(), ref, "/proc/self/status", 10, &got)
		if !errors.As(err, &told) || told.Kind != plugin.KindTooLarge || got.Len() > 10 {
			t.Errorf("/proc: %v, %d bytes", err, got.Len())
		}
		if err := files.ReadFile(t.Context(), ref, "/proc/self/status", 0, &got); err != nil || got.Len() < 100 {
			t.Errorf("/proc without a limit: %v, %d bytes", err, got.Len())
		}
		broken := errors.New("disk full")
		if err := files.ReadFile(t.Context(), ref, "f", 0, failingWriter{broken}); !errors.Is(err, broken) {
			t.Errorf("failing writer: %v", err)
		}
	})
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestPathErrors(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		must := func(err error) {
			if err != nil {
				t.Helper()
				t.Fatal(err)
			}
		}
		at := func(name string) string { return filepath.Join(g.dir, name) }
		must(os.Mkdir(at("dir"), 0o755))
		must(os.WriteFile(at("file"), []byte("x"), 0o644))
		must(os.Symlink("dir", at("link-dir")))
		must(os.Symlink("nowhere", at("dangling")))
		must(os.Symlink("loop", at("loop")))
		must(syscall.Mkfifo(at("fifo"), 0o666))

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		read := func(path string) error { return files.ReadFile(ctx, ref, path, 10, io.Discard) }
		write := func(path string) error { return files.WriteFile(ctx, ref, path, 0, strings.NewReader("new")) }
		list := func(path string) error { _, err := files.ReadDir(ctx, ref, path); return err }
		stat := func(path string) error { _, err := files.Stat(ctx, ref, path, true); return err }
		pack := func(path string) error { return files.GetArchive(ctx, ref, path, true, io.Discard) }
		unpack := func(path string) error { return files.PutArchive(ctx, ref, path, bytes.NewReader(make([]byte, 1024))) }

		for _, call := range []func(string) error{read, list, stat, pack} {
			wantReason(t, call("missing"), plugin.PathMissing)
			wantReason(t, call("missing/deep"), plugin.PathMissing)
			wantReason(t, call("dangling"), plugin.PathMissing)
			wantReason(t, call("file/under"), plugin.PathNotDirectory)
			wantReason(t, call("file/"), plugin.PathNotDirectory)
		}
		for _, call := range []func(string) error{read, list, stat, pack, write, unpack} {
			wantReason(t, call(""), plugin.PathInvalid)
			wantReason(t, call("a\x00b"), plugin.PathInvalid)
			wantReason(t, call(strings.Repeat("n/", 2500)), plugin.PathInvalid)
			wantReason(t, call(strings.Repeat("n", 256)), plugin.PathInvalid)
		}
		for _, path := range []string{"dir", "link-dir", "/", "."} {
			wantReason(t, read(path), plugin.PathIsDirectory)
			wantReason(t, write(path), plugin.PathIsDirectory)
		}
		wantReason(t, read("loop"), plugin.PathMissing)
		wantReason(t, write("loop"), plugin.PathMissing)
		wantReason(t, write("file/under"), plugin.PathNotDirectory)
		wantReason(t, unpack("file"), plugin.PathNotDirectory)
		wantReason(t, unpack("file/under"), plugin.PathNotDirectory)
		wantReason(t, list("file"), plugin.PathNotDirectory)
		for _, path := range []string{"fifo", "/dev/zero", "/dev/null"} {
			wantReason(t, read(path), plugin.PathNotRegular)
			wantReason(t, write(path), plugin.PathNotRegular)
			wantReason(t, pack(path), plugin.PathNotRegular)
		}
	})
}

func TestPermission(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run recipes as another user")
	}
	guests(t, func(t *testing.T, g *guest, files *Files) {
		g.user = true
		closed := filepath.Join(g.dir, "closed")
		os.Mkdir(closed, 0o700)
		os.WriteFile(closed+"/inside", nil, 0o644)
		os.WriteFile(g.dir+"/secret", []byte("x"), 0o600)
		os.WriteFile(g.dir+"/fixed", []byte("x"), 0o444)
		os.Mkdir(g.dir+"/foreign", 0o755)
		_, listErr := files.ReadDir(t.Context(), ref, "closed")
		_, statErr := files.Stat(t.Context(), ref, "closed/inside", false)
		for _, err := range []error{
			files.ReadFile(t.Context(), ref, "secret", 10, io.Discard),
			files.ReadFile(t.Context(), ref, "closed/inside", 10, io.Discard),
			files.WriteFile(t.Context(), ref, "fixed", 0, strings.NewReader("y")),
			files.WriteFile(t.Context(), ref, "foreign/new", 0, strings.NewReader("y")),
			files.WriteFile(t.Context(), ref, "foreign/new/deep", 0, strings.NewReader("y")),
			files.GetArchive(t.Context(), ref, "closed", false, io.Discard),
			files.GetArchive(t.Context(), ref, "secret", false, io.Discard),
			files.PutArchive(t.Context(), ref, "foreign", bytes.NewReader(make([]byte, 1024))),
			listErr, statErr,
		} {
			wantReason(t, err, plugin.PathPermission)
		}
		if err := files.WriteFile(t.Context(), ref, "mine", 0o640, strings.NewReader("y")); err != nil {
			t.Error(err)
		}
		g.user = false // so that the leftovers can be looked for
	})
}

func TestFullAndReadOnly(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		mount := t.TempDir()
		if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=256k"); err != nil {
			t.Skipf("cannot mount a small file system: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(mount, syscall.MNT_DETACH) })
		os.WriteFile(mount+"/kept", []byte("old"), 0o644)
		large := bytes.NewReader(make([]byte, 1<<20))
		wantReason(t, files.WriteFile(t.Context(), ref, mount+"/kept", 0, large), plugin.PathNoSpace)
		if content, _ := os.ReadFile(mount + "/kept"); string(content) != "old" {
			t.Errorf("the file holds %q", content)
		}
		noLeftovers(t, mount)
		if err := syscall.Mount("", mount, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=256k"); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/kept", "/new", "/deep/new"} {
			wantReason(t, files.WriteFile(t.Context(), ref, mount+path, 0, strings.NewReader("x")), plugin.PathReadOnly)
		}
		wantReason(t, files.PutArchive(t.Context(), ref, mount, bytes.NewReader(make([]byte, 1024))), plugin.PathReadOnly)
	})
}

func TestWriteKeepsWhatItReplaces(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		at := func(name string) string { return filepath.Join(g.dir, name) }
		write := func(name, content string, mode uint32) {
			t.Helper()
			if err := files.WriteFile(t.Context(), ref, name, mode, strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
		}
		write("tool", "#!/bin/sh", 0o755)
		write("tool", "new", 0o600)
		if info, _ := os.Stat(at("tool")); info.Mode().Perm() != 0o755 || info.Size() != 3 {
			t.Errorf("mode %v, size %d after overwriting", info.Mode(), info.Size())
		}
		write("private/key", "k", 0o600)
		if info, _ := os.Stat(at("private/key")); info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v", info.Mode())
		}
		if info, _ := os.Stat(at("private")); info.Mode().Perm() != 0o755 {
			t.Errorf("the parent that was made has mode %v", info.Mode())
		}
		os.Symlink("../tool", at("private/link"))
		write("private/link", "through", 0)
		if target, _ := os.Readlink(at("private/link")); target != "../tool" {
			t.Error("the link was replaced")
		}
		if content, _ := os.ReadFile(at("tool")); string(content) != "through" {
			t.Errorf("the link's target holds %q", content)
		}
		os.Symlink(at("not\nyet\n"), at("dangling"))
		write("dangling", "made", 0)
		if content, _ := os.ReadFile(at("not\nyet\n")); string(content) != "made" {
			t.Errorf("the dangling link's target holds %q", content)
		}
	})
}

func TestIncompleteUploadChangesNothing(t *testing.T) {
	lost := errors.New("the sender is gone")
	guests(t, func(t *testing.T, g *guest, files *Files) {
		os.WriteFile(g.dir+"/f", []byte("old"), 0o644)
		half := func() io.Reader { return io.MultiReader(strings.NewReader("half"), iotest.ErrReader(lost)) }
		if err := files.WriteFile(t.Context(), ref, "f", 0, half()); !errors.Is(err, lost) {
			t.Errorf("write: %v", err)
		}
		if err := files.PutArchive(t.Context(), ref, ".", half()); !errors.Is(err, lost) {
			t.Errorf("unpack: %v", err)
		}
		noLeftovers(t, g.dir)

		// The caller gives up while content is on its way: the command is killed and
		// cannot clean up by itself.
		ctx, cancel := context.WithCancel(t.Context())
		content, sender := io.Pipe()
		go func() {
			sender.Write([]byte("some"))
			for !hasTemporary(g.dir) && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel()
			sender.CloseWithError(context.Canceled)
		}()
		if err := files.WriteFile(ctx, ref, "f", 0, content); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if content, _ := os.ReadFile(g.dir + "/f"); string(content) != "old" {
			t.Errorf("the file holds %q", content)
		}
	})
}

// A command that is killed before it asks for content may have made its file.
func TestUploadThatIsCutBeforeItsContent(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, _ *Files) {
		ctx, cancel := context.WithCancel(t.Context())
		never, sender := io.Pipe()
		defer sender.Close()
		files := New(func(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
			if !request.Stdin {
				return g.exec(ctx, ref, request, stdio)
			}
			deaf := *stdio
			deaf.Stdin = never
			return g.exec(ctx, ref, request, &deaf)
		})
		go func() {
			for !hasTemporary(g.dir) && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel()
			sender.Close()
		}()
		if err := files.WriteFile(ctx, ref, "f", 0, strings.NewReader("content")); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func hasTemporary(dir string) bool {
	found, _ := filepath.Glob(dir + "/.sandboxctl-*")
	return len(found) > 0
}

// A transport that loses the end of stdin must not look like a shorter file.
func TestLostInputIsNoticed(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, _ *Files) {
		lossy := New(func(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
			all, _ := io.ReadAll(stdio.Stdin)
			cut := *stdio
			cut.Stdin = bytes.NewReader(append(all[:1:1], all[2:]...))
			return g.exec(ctx, ref, request, &cut)
		})
		err := lossy.WriteFile(t.Context(), ref, "f", 0, strings.NewReader("content"))
		if plugin.KindOf(err) != plugin.KindUnavailable {
			t.Errorf("error is %v", err)
		}
		if _, err := os.Stat(g.dir + "/f"); err == nil {
			t.Error("the file was written")
		}
	})
}

func TestListing(t *testing.T) {
	many := t.TempDir()
	for i := range 20_000 {
		if err := os.WriteFile(fmt.Sprintf("%s/entry\n%05d", many, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	guests(t, func(t *testing.T, g *guest, files *Files) {
		start := time.Now()
		g.execs = 0
		entries, err := files.ReadDir(t.Context(), ref, many)
		if err != nil || len(entries) != 20_000 || g.execs != 1 {
			t.Fatalf("%d entries, %v, in %d execs", len(entries), err, g.execs)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}

		small := filepath.Join(g.dir, "small")
		os.Mkdir(small, 0o755)
		if entries, err := files.ReadDir(t.Context(), ref, "small"); err != nil || len(entries) != 0 {
			t.Errorf("empty: %v, %v", entries, err)
		}
		os.WriteFile(small+"/f", []byte("123"), 0o640)
		syscall.Chmod(small+"/f", 0o4750)
		os.Chtimes(small+"/f", time.Time{}, time.Unix(1700000000, 0))
		os.Mkdir(small+"/..d", 0o755)
		os.Symlink("to\n", small+"/l")
		os.Symlink("..d", small+"/ld")
		syscall.Mkfifo(small+"/p", 0o600)
		os.Symlink("small", g.dir+"/link")
		want := map[string]plugin.FileInfo{
			"f":   {Name: "f", Kind: plugin.FileRegular, Size: 3, Mode: 0o4750},
			"..d": {Name: "..d", Kind: plugin.FileDirectory, Mode: 0o755},
			"l":   {Name: "l", Kind: plugin.FileSymlink, LinkTarget: "to\n", Mode: 0o777},
			"ld":  {Name: "ld", Kind: plugin.FileSymlink, LinkTarget: "..d", Mode: 0o777},
			"p":   {Name: "p", Kind: plugin.FileOther, Mode: 0o600},
		}
		entries, err = files.ReadDir(t.Context(), ref, "link")
		if err != nil || len(entries) != len(want) {
			t.Fatalf("%+v, %v", entries, err)
		}
		for _, entry := range entries {
			stat, err := files.Stat(t.Context(), ref, "small/"+entry.Name, false)
			if err != nil || stat != entry {
				t.Errorf("stat says %+v, %v; the listing %+v", stat, err, entry)
			}
			if entry.Name == "f" && entry.ModTime.Unix() != 1700000000 {
				t.Errorf("modified %v", entry.ModTime)
			}
			entry.ModTime = time.Time{}
			if entry.Kind != plugin.FileRegular {
				entry.Size = 0
			}
			if entry != want[entry.Name] {
				t.Errorf("entry is %+v, want %+v", entry, want[entry.Name])
			}
		}
	})
}

func TestMissingTools(t *testing.T) {
	guests(t, func(t *testing.T, g *guest, files *Files) {
		empty := t.TempDir()
		path, err := lookShell(g)
		if err != nil {
			t.Fatal(err)
		}
		g.shell[0], g.path = path, empty
		if g.shell[len(g.shell)-1] == "sh" {
			t.Skip("this busybox brings its tools along, whatever PATH says")
		}
		err = files.GetArchive(t.Context(), ref, ".", false, io.Discard)
		if plugin.KindOf(err) != plugin.KindRefused || !strings.Contains(err.Error(), "tar") {
			t.Errorf("without tar: %v", err)
		}
	})
}
