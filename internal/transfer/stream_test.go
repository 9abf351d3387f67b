package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

var streamItems = []item{"top/", "top/d/", "top/d/f", "top/g", "top/h => top/g", "top/l -> d/f"}

// TestCutAnywhere cuts an archive at every byte. Whoever reads it must fail,
// and an extraction must leave whole files or none, no link, and nothing else.
func TestCutAnywhere(t *testing.T) {
	data := tarOf(t, "top/f", "top/l -> f")
	dst := t.TempDir()
	for cut := range data {
		_, err := Unpack(t.Context(), bytes.NewReader(data[:cut]), Target{Dir: dst, Name: "copy"}, UnpackOptions{})
		if ClassOf(err) != ClassTruncated || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("unpacked %d of %d bytes: %v", cut, len(data), err)
		}
		if got, err := os.ReadFile(filepath.Join(dst, "copy", "f")); err == nil && string(got) != "new" {
			t.Fatalf("cut at %d: the file holds %q", cut, got)
		}
		entries, err := os.ReadDir(filepath.Join(dst, "copy"))
		if len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "f" {
			t.Fatalf("cut at %d: %v is left, %v", cut, entries, err)
		}
		var out bytes.Buffer
		if _, err := Passthrough(t.Context(), &out, bytes.NewReader(data[:cut]), nil); ClassOf(err) != ClassTruncated {
			t.Fatalf("passed %d bytes through: %v", cut, err)
		}
		if !bytes.Equal(out.Bytes(), data[:cut]) {
			t.Fatalf("passed %d of %d bytes through", out.Len(), cut)
		}
		if _, err := Rebase(t.Context(), io.Discard, bytes.NewReader(data[:cut]), "copy", RebaseOptions{}); ClassOf(err) != ClassTruncated {
			t.Fatalf("rebased %d bytes: %v", cut, err)
		}
	}
}

// TestReplaceKeepsOldOnCut: an older file stays whole until the new one is.
func TestReplaceKeepsOldOnCut(t *testing.T) {
	dst := t.TempDir()
	write(t, filepath.Join(dst, "copy", "d", "f"), "old")
	data := tarOf(t, streamItems...)
	half := bytes.Index(data, []byte("new")) + 1
	if _, err := Unpack(t.Context(), bytes.NewReader(data[:half]), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); ClassOf(err) != ClassTruncated {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dst, "copy", "d", "f")); string(got) != "old" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// TestSenderError: the driver's own error is reported, wherever it comes, also
// after the last byte of a complete archive.
func TestSenderError(t *testing.T) {
	data := tarOf(t, streamItems...)
	gone := fmt.Errorf("the sandbox is gone: %w", io.ErrUnexpectedEOF) // not to be mistaken for our own
	for _, at := range []int{0, 100, 512, 700, 1536, 1537, len(data) - 1024, len(data) - 512, len(data)} {
		stream := func() io.Reader { return io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(gone)) }
		dst := t.TempDir()
		if _, err := Unpack(t.Context(), stream(), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); !errors.Is(err, gone) {
			t.Errorf("unpacked up to %d: %v", at, err)
		}
		if _, err := Unpack(t.Context(), iotest.DataErrReader(stream()), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); !errors.Is(err, gone) {
			t.Errorf("unpacked up to %d with an error beside the last bytes: %v", at, err)
		}
		if _, err := os.Lstat(filepath.Join(dst, "copy", "l")); err == nil {
			t.Errorf("failed at %d: a link was made", at)
		}
		if _, err := Passthrough(t.Context(), io.Discard, stream(), nil); !errors.Is(err, gone) {
			t.Errorf("passed through up to %d: %v", at, err)
		}
		if _, err := Rebase(t.Context(), io.Discard, stream(), "copy", RebaseOptions{}); !errors.Is(err, gone) {
			t.Errorf("rebased up to %d: %v", at, err)
		}
	}
}

// TestReaderShapes: the framing of the reads means nothing.
func TestReaderShapes(t *testing.T) {
	data := append(tarOf(t, streamItems...), make([]byte, 9*1024)...) // padded as GNU tar does
	want := ""
	for name, shape := range map[string]func(io.Reader) io.Reader{
		"whole":    func(r io.Reader) io.Reader { return r },
		"one byte": iotest.OneByteReader,
		"half":     iotest.HalfReader,
		"with EOF": iotest.DataErrReader,
	} {
		dst := t.TempDir()
		if _, err := Unpack(t.Context(), shape(bytes.NewReader(data)), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := snapshot(t, dst)
		if want == "" {
			want = got
		}
		if got != want || !strings.Contains(got, `"copy/h"`) {
			t.Errorf("%s:\n%s", name, got)
		}
		var out bytes.Buffer
		if _, err := Passthrough(t.Context(), &out, shape(bytes.NewReader(data)), nil); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%s: %d of %d bytes passed through, %v", name, out.Len(), len(data), err)
		}
	}
}

// TestLateDirectory: a directory that comes after its own entries gets its mode
// and time all the same.
func TestLateDirectory(t *testing.T) {
	dst := t.TempDir()
	data := patch(tarOf(t, "top/d/", "top/d/e/f"), 0, map[int]string{100: "0000750\x00"})
	late := append(data[512:3*512:3*512], data[:512]...)
	late = append(late, make([]byte, 1024)...)
	if _, err := Unpack(t.Context(), bytes.NewReader(late), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"copy/d": 0o750, "copy/d/e": 0o755} {
		fi, err := os.Stat(filepath.Join(dst, name))
		if err != nil || fi.Mode().Perm() != mode || fi.ModTime().Equal(epoch) != (name == "copy/d") {
			t.Errorf("%s is %v of %v, %v", name, fi.Mode(), fi.ModTime(), err)
		}
	}
}

func TestHardLinksStayLinks(t *testing.T) {
	dst := t.TempDir()
	stats, err := Unpack(t.Context(), bytes.NewReader(tarOf(t, streamItems...)), Target{Dir: dst}, UnpackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g, err1 := os.Stat(filepath.Join(dst, "g"))
	h, err2 := os.Stat(filepath.Join(dst, "h"))
	if err1 != nil || err2 != nil || !os.SameFile(g, h) {
		t.Errorf("g and h are not one file: %v, %v", err1, err2)
	}
	if stats.Links != 2 || stats.Files != 2 || stats.Dirs != 2 {
		t.Errorf("stats %+v", stats)
	}
}

// TestCancel ends the context in the middle of a file.
func TestCancel(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "f"), t.TempDir()
	write(t, src, strings.Repeat("x", 4*bufferSize))
	var packed bytes.Buffer
	if _, err := Pack(t.Context(), &packed, src, PackOptions{Name: "n"}); err != nil {
		t.Fatal(err)
	}
	interrupted := errors.New("interrupted")
	for name, run := range map[string]func(context.Context, Progress) error{
		"pack": func(ctx context.Context, p Progress) error {
			_, err := Pack(ctx, io.Discard, src, PackOptions{Name: "n", Progress: p})
			return err
		},
		"unpack": func(ctx context.Context, p Progress) error {
			_, err := Unpack(ctx, bytes.NewReader(packed.Bytes()), Target{Dir: dst, Name: "n"}, UnpackOptions{Progress: p})
			return err
		},
		"rebase": func(ctx context.Context, p Progress) error {
			_, err := Rebase(ctx, io.Discard, bytes.NewReader(packed.Bytes()), "n", RebaseOptions{Progress: p})
			return err
		},
		"passthrough": func(ctx context.Context, p Progress) error {
			_, err := Passthrough(ctx, io.Discard, bytes.NewReader(packed.Bytes()), p)
			return err
		},
		"copy": func(ctx context.Context, p Progress) error {
			_, err := Copy(ctx, io.Discard, bytes.NewReader(packed.Bytes()), p)
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := run(ctx, func(int64) { cancel(interrupted) }); !errors.Is(err, interrupted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(dst); len(entries) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRebase(t *testing.T) {
	data := tarOf(t, "top/", "top/d/", "top/d/f", "top/h => top/d/f", "top/l -> /etc/passwd")
	data = patch(data, 1024, map[int]string{100: "0006755\x00", 108: "0001750\x00", 265: "user"})
	var out bytes.Buffer
	if _, err := Rebase(t.Context(), &out, bytes.NewReader(data), "copy", RebaseOptions{}); err != nil {
		t.Fatal(err)
	}
	got := headers(t, out.Bytes())
	if len(got) != 5 || got["copy/"] == nil || got["copy/h"].Linkname != "copy/d/f" || got["copy/l"].Linkname != "/etc/passwd" {
		t.Errorf("entries %v", got)
	}
	if f := got["copy/d/f"]; f.Mode != 0o755 || f.Uid != 0 || f.Uname != "" || f.Size != 3 || !f.ModTime.Equal(epoch) {
		t.Errorf("header %+v", f)
	}

	out.Reset()
	if _, err := Rebase(t.Context(), &out, bytes.NewReader(data), "", RebaseOptions{}); err != nil {
		t.Fatal(err)
	}
	got = headers(t, out.Bytes())
	if len(got) != 4 || got["d/"] == nil || got["h"].Linkname != "d/f" {
		t.Errorf("contents alone: %v", got)
	}
	if _, err := Rebase(t.Context(), &out, bytes.NewReader(tarOf(t, "top")), "", RebaseOptions{}); ClassOf(err) != ClassRefused {
		t.Errorf("the contents of a file: %v", err)
	}
}

// TestRebaseRefusesHostile: what may not be extracted here is not handed to
// another sandbox either, except for where its links point.
func TestRebaseRefusesHostile(t *testing.T) {
	for _, tt := range hostileCases(t) {
		if tt.class == ClassPath || strings.Contains(tt.wantErr, "-L") {
			continue
		}
		if _, err := Rebase(t.Context(), io.Discard, bytes.NewReader(tt.archive), "copy", RebaseOptions{}); ClassOf(err) != tt.class {
			t.Errorf("%s: %v (%q), want %q", tt.name, err, ClassOf(err), tt.class)
		}
	}
}

func TestWriteFileAtomic(t *testing.T) {
	dir := t.TempDir()
	dst := filepath.Join(dir, "f")
	put := func(content string, fail error) error {
		return WriteFileAtomic(dst, 0o640|os.ModeSetuid, epoch, func(w io.Writer) error {
			if _, err := io.WriteString(w, content); err != nil {
				return err
			}
			return fail
		})
	}
	broken := errors.New("the driver reports an error")
	if err := put("half", broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	if got := snapshot(t, dir); strings.Count(got, "\n") != 1 {
		t.Errorf("after a failure:\n%s", got)
	}
	for _, content := range []string{"longer content", "short"} {
		if err := put(content, nil); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(dst); string(got) != content {
			t.Errorf("holds %q, want %q", got, content)
		}
	}
	if err := put("half", broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	if got := snapshot(t, dir); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"f" -rw-r----- 1700000000 "short"`) {
		t.Errorf("after a failure over an older file:\n%s", got)
	}
	if err := WriteFileAtomic(dir, 0o644, epoch, nil); ClassOf(err) != ClassPath || !strings.Contains(err.Error(), "directory is in the way") {
		t.Error(err)
	}
	if err := WriteFileAtomic(filepath.Join(dir, "no", "f"), 0o644, epoch, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
