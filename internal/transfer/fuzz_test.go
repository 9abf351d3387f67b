package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzUnpack feeds foreign bytes to the extraction and to the copy between
// sandboxes. Whatever they hold: nothing outside of the destination changes,
// every link made stays inside, nothing special is created, no temporary file
// is left, and what is handed on to another sandbox lies below its new name.
func FuzzUnpack(f *testing.F) {
	for _, c := range hostileCases(f) {
		if len(c.archive) < 64<<10 { // a mutation of megabytes takes seconds
			f.Add(c.archive)
		}
	}
	f.Add(tarOf(f, streamItems...))
	f.Add(tarOfPAX(f, "top"))
	f.Fuzz(func(t *testing.T, data []byte) {
		outside, dst := hostileDirs(t)
		before := snapshot(t, outside)
		limits := Limits{Entries: 1000, Bytes: 1 << 20}
		_, err := Unpack(t.Context(), bytes.NewReader(data), Target{Dir: dst, Name: "copy"}, UnpackOptions{Limits: limits})
		if after := snapshot(t, outside); after != before {
			t.Fatalf("outside changed from\n%s\nto\n%s", before, after)
		}
		checkExtracted(t, dst, err == nil)

		var out bytes.Buffer
		if _, err := Rebase(t.Context(), &out, bytes.NewReader(data), "copy", RebaseOptions{Limits: limits}); err == nil {
			checkRebased(t, out.Bytes())
		}
	})
}

// checkExtracted does not use snapshot, as a directory that an archive made
// unreadable is not an error.
func checkExtracted(t *testing.T, dst string, complete bool) {
	t.Helper()
	if entries, err := os.ReadDir(filepath.Dir(dst)); err != nil || len(entries) != 2 {
		t.Fatalf("beside the destination: %v, %v", entries, err)
	}
	entries, err := os.ReadDir(dst)
	if err != nil || len(entries) > 1 || complete && len(entries) == 0 || len(entries) == 1 && entries[0].Name() != "copy" {
		t.Fatalf("in the destination: %v, %v", entries, err)
	}
	top := filepath.Join(dst, "copy")
	_ = filepath.WalkDir(dst, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if strings.Contains(entry.Name(), ".sandboxctl-") {
			t.Fatalf("a temporary file is left: %q", path)
		}
		fi, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if kindOf(fi.Mode()) == KindOther || fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
			t.Fatalf("%q was made with mode %v", path, fi.Mode())
		}
		if real, err := filepath.EvalSymlinks(path); err == nil && path != dst && real != top && !strings.HasPrefix(real, top+string(filepath.Separator)) {
			t.Fatalf("%q leads to %q", path, real)
		}
		return nil
	})
}

func checkRebased(t *testing.T, data []byte) {
	t.Helper()
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("what was passed on is broken: %v", err)
		}
		if name := strings.TrimSuffix(hdr.Name, "/"); name != "copy" && !strings.HasPrefix(name, "copy/") || !filepath.IsLocal(name) {
			t.Fatalf("%q was passed on", hdr.Name)
		}
	}
}
