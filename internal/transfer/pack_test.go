package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sampleTree makes a directory of the things that other tools lose.
func sampleTree(t testing.TB, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, ".git", "HEAD"), "ref")
	write(t, filepath.Join(dir, ".gitignore"), "*")
	write(t, filepath.Join(dir, ".hidden"), "")
	write(t, filepath.Join(dir, "node_modules", "x", "index.js"), "x")
	write(t, filepath.Join(dir, "run.sh"), "#!/bin/sh\n")
	write(t, filepath.Join(dir, "big"), strings.Repeat("0123456789", bufferSize/10+1))
	write(t, filepath.Join(dir, strings.Repeat("n", 255)), "n")
	write(t, filepath.Join(dir, strings.Repeat("deep/", 60), "f"), "deep")
	write(t, filepath.Join(dir, "-rf ;'\"$x", "ü"), "odd")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	symlink(t, "run.sh", filepath.Join(dir, "to-file"))
	symlink(t, "node_modules/x", filepath.Join(dir, "to-dir"))
	symlink(t, "../run.sh", filepath.Join(dir, ".git", "up"))
	symlink(t, "nowhere", filepath.Join(dir, "dangling"))
	symlink(t, strings.Repeat("t", 200), filepath.Join(dir, "long-target"))
	for name, mode := range map[string]os.FileMode{"run.sh": 0o755, ".hidden": 0o600, "big": 0o444} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), epoch, epoch); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "empty"), epoch, epoch); err != nil {
		t.Fatal(err)
	}
}

// roundTrip packs src and unpacks it as dst/name.
func roundTrip(t testing.TB, src, dst, name string, opts PackOptions) (packed, unpacked Stats, err error) {
	t.Helper()
	opts.Name = "top"
	err = pipe(
		func(w io.Writer) (err error) {
			packed, err = Pack(t.Context(), w, src, opts)
			return err
		},
		func(r io.Reader) (err error) {
			unpacked, err = Unpack(t.Context(), r, Target{Dir: dst, Name: name}, UnpackOptions{})
			return err
		})
	return packed, unpacked, err
}

func TestRoundTrip(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), t.TempDir()
	sampleTree(t, src)
	packed, unpacked, err := roundTrip(t, src, dst, "copy", PackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want, got := snapshot(t, src), snapshot(t, filepath.Join(dst, "copy")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if packed.Files != unpacked.Files || packed.Dirs != unpacked.Dirs || packed.Links != unpacked.Links || packed.Bytes != unpacked.Bytes || packed.Files != 9 || packed.Links != 5 {
		t.Errorf("packed %+v, unpacked %+v", packed, unpacked)
	}
	fi, err := os.Stat(filepath.Join(dst, "copy", "empty"))
	if err != nil || !fi.ModTime().Equal(epoch) {
		t.Errorf("the time of a directory is %v, %v", fi.ModTime(), err)
	}

	// A second copy over the first gives the same and is no conflict.
	if _, _, err := roundTrip(t, src, dst, "copy", PackOptions{}); err != nil {
		t.Fatal(err)
	}
	if want, got := snapshot(t, src), snapshot(t, filepath.Join(dst, "copy")); got != want {
		t.Errorf("copied twice\n%s\nwant\n%s", got, want)
	}
}

// headers reads an archive the way another tar program would.
func headers(t testing.TB, data []byte) map[string]*tar.Header {
	t.Helper()
	found := map[string]*tar.Header{}
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[hdr.Name] = hdr
	}
}

func packBytes(t testing.TB, src string, opts PackOptions) (map[string]*tar.Header, Stats) {
	t.Helper()
	var buf bytes.Buffer
	stats, err := Pack(t.Context(), &buf, src, opts)
	if err != nil {
		t.Fatal(err)
	}
	return headers(t, buf.Bytes()), stats
}

func TestPackNamesAndOwners(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	write(t, filepath.Join(src, "f"), "x")
	long := strings.Repeat("ü", 120)
	write(t, filepath.Join(src, long), "x")
	later := epoch.Add(999 * time.Millisecond)
	if err := os.Chtimes(filepath.Join(src, "f"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(src, "f"), 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	named, _ := packBytes(t, src, PackOptions{Name: "n"})
	if len(named) != 3 || named["n/"] == nil || named["n/f"] == nil || named["n/"+long] == nil {
		t.Fatalf("entries %v", named)
	}
	if format := named["n/"+long].Format; format != tar.FormatGNU {
		t.Errorf("format %v, of which BusyBox drops the name", format)
	}
	f := named["n/f"]
	if f.Mode != 0o755 || f.Uid != 0 || f.Gid != 0 || f.Uname != "" || f.Gname != "" || !f.ModTime.Equal(epoch) {
		t.Errorf("header %+v", f)
	}
	contents, _ := packBytes(t, src, PackOptions{})
	if len(contents) != 2 || contents["f"] == nil {
		t.Errorf("contents alone: %v", contents)
	}
	single, _ := packBytes(t, filepath.Join(src, "f"), PackOptions{Name: "g"})
	if len(single) != 1 || single["g"] == nil {
		t.Errorf("a single file: %v", single)
	}
}

func TestPackLinks(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	write(t, filepath.Join(src, "d", "f"), "x")
	symlink(t, "d", filepath.Join(src, "l"))
	symlink(t, "/etc/hostname-that-is-not", filepath.Join(src, "d", "abs"))

	kept, _ := packBytes(t, src, PackOptions{Name: "n"})
	if l := kept["n/l"]; l == nil || l.Typeflag != tar.TypeSymlink || l.Linkname != "d" {
		t.Errorf("link %+v", l)
	}
	if l := kept["n/d/abs"]; l == nil || l.Linkname != "/etc/hostname-that-is-not" {
		t.Errorf("absolute link %+v", l)
	}
	if top, _ := packBytes(t, filepath.Join(src, "l"), PackOptions{Name: "n"}); top["n"] == nil || top["n"].Typeflag != tar.TypeSymlink {
		t.Errorf("link as the source: %v", top)
	}
	for _, marker := range []string{"/", "/."} {
		if top, _ := packBytes(t, filepath.Join(src, "l")+marker, PackOptions{Name: "n"}); top["n/f"] == nil {
			t.Errorf("link with %s as the source: %v", marker, top)
		}
	}
}

func TestPackFollowLinks(t *testing.T) {
	tmp := t.TempDir()
	src := filepath.Join(tmp, "src")
	write(t, filepath.Join(tmp, "elsewhere", "f"), "x")
	write(t, filepath.Join(src, "d", "f"), "x")
	symlink(t, "d", filepath.Join(src, "to-dir"))
	symlink(t, "d/f", filepath.Join(src, "to-file"))
	symlink(t, "to-file", filepath.Join(src, "to-link"))
	symlink(t, filepath.Join(tmp, "elsewhere"), filepath.Join(src, "out"))
	got, stats := packBytes(t, src, PackOptions{Name: "n", FollowLinks: true})
	for _, name := range []string{"n/to-dir/f", "n/to-file", "n/to-link", "n/out/f", "n/d/f"} {
		if got[name] == nil || got[name].Typeflag != tar.TypeReg {
			t.Errorf("%s is %+v", name, got[name])
		}
	}
	if stats.Links != 0 {
		t.Errorf("%d links", stats.Links)
	}
}

func TestPackFollowLinksFails(t *testing.T) {
	for name, target := range map[string]string{"to-itself": "to-itself", "to-parent": "..", "to-here": ".", "dangling": "nowhere"} {
		src := filepath.Join(t.TempDir(), "src")
		write(t, filepath.Join(src, "d", "f"), "x")
		symlink(t, target, filepath.Join(src, "d", name))
		_, err := Pack(t.Context(), io.Discard, src, PackOptions{Name: "n", FollowLinks: true})
		if ClassOf(err) != ClassPath || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Pack(t.Context(), io.Discard, src, PackOptions{Name: "n"}); err != nil {
			t.Errorf("%s, not followed: %v", name, err)
		}
	}
}

// TestPackChangingFile changes a file's size in the middle of its own copy.
func TestPackChangingFile(t *testing.T) {
	for size, want := range map[int64]string{bufferSize + 1: "shrank", 5 * bufferSize: "grew"} {
		path := filepath.Join(t.TempDir(), "f")
		write(t, path, strings.Repeat("x", 4*bufferSize))
		var out bytes.Buffer
		_, err := Pack(t.Context(), &out, path, PackOptions{Name: "n", Progress: func(int64) {
			if err := os.Truncate(path, size); err != nil {
				t.Error(err)
			}
		}})
		if ClassOf(err) != ClassChanged || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
		if _, err := Passthrough(t.Context(), io.Discard, &out, nil); ClassOf(err) != ClassTruncated {
			t.Errorf("what was sent passes for a whole archive: %v", err)
		}
	}
}

// TestPackReplacedFile hands over a description of another file, as if the name
// had been given away between the look and the opening.
func TestPackReplacedFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "a")
	write(t, filepath.Join(dir, "b"), "b")
	a, err := os.Lstat(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	p := packer{tw: tar.NewWriter(io.Discard), copier: copier{ctx: t.Context()}}
	if err := p.packFile(filepath.Join(dir, "b"), "n", a); ClassOf(err) != ClassChanged {
		t.Error(err)
	}
}

func TestPackErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Pack(t.Context(), io.Discard, filepath.Join(dir, "no"), PackOptions{Name: "n"}); !errors.Is(err, os.ErrNotExist) || ClassOf(err) != ClassPath {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "f"), "x")
	if _, err := Pack(t.Context(), io.Discard, filepath.Join(dir, "f"), PackOptions{}); ClassOf(err) != ClassPath {
		t.Error(err)
	}
	broken := errors.New("the driver hung up")
	r, w := io.Pipe()
	r.CloseWithError(broken)
	if _, err := Pack(t.Context(), w, dir, PackOptions{Name: "n"}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestProgress(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), t.TempDir()
	write(t, filepath.Join(src, "a"), strings.Repeat("x", 3*bufferSize))
	write(t, filepath.Join(src, "b"), "x")
	var last int64
	stats, _, err := roundTrip(t, src, dst, "copy", PackOptions{Progress: func(n int64) {
		if n <= last {
			t.Errorf("progress went from %d to %d", last, n)
		}
		last = n
	}})
	if err != nil || last != stats.Bytes || last != 3*bufferSize+1 {
		t.Errorf("last progress %d, stats %+v, %v", last, stats, err)
	}
}
