package transfer

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

type hostileCase struct {
	name    string
	archive []byte
	// have is what the destination holds before, as in prepare.
	have    string
	class   Class
	wantErr string
}

func hostileCases(t testing.TB) []hostileCase {
	tar := func(items ...item) []byte { return tarOf(t, items...) }
	return []hostileCase{
		{"dotdot", tar("../x"), "", ClassRefused, `".."`},
		{"dotdot alone", tar("../"), "", ClassRefused, `".."`},
		{"dotdot below top", tar("top/", "top/../x"), "", ClassRefused, `".."`},
		{"dotdot deep", tar("top/a/../../../outside/x"), "", ClassRefused, `".."`},
		{"dotdot in a directory", tar("top/../../outside/"), "", ClassRefused, `".."`},
		{"absolute", tar("/outside"), "", ClassRefused, "absolute"},
		{"absolute twice", tar("//outside"), "", ClassRefused, "absolute"},
		{"second top", tar("top/", "other/x"), "", ClassRefused, "outside of"},
		{"NUL in a PAX name", nulName(t), "", ClassCorrupt, "not a valid tar"},
		{"file with a slash", slashFile(t), "", ClassRefused, "ends in a slash"},

		{"absolute link", tar("top/", "top/l -> /etc/passwd"), "", ClassRefused, "use -L"},
		{"link out", tar("top/", "top/l -> ../../outside"), "", ClassRefused, "use -L"},
		{"link to a sibling of the copy", tar("top/", "top/l -> ../secret"), "", ClassRefused, "use -L"},
		{"link out of a deep directory", tar("top/a/b/l -> ../../../x"), "", ClassRefused, "use -L"},
		{"link through a link", tar("top/", "top/d -> .", "top/l -> d/../../outside"), "", ClassRefused, "use -L"},
		{"link through a link that looks inside", tar("top/", "top/a/", "top/a/d -> ..", "top/l -> a/d/../x"), "", ClassRefused, "use -L"},
		{"link that climbs out of a link", tar("top/", "top/a/", "top/a/d -> ..", "top/a/l -> d/../secret"), "", ClassRefused, "use -L"},
		{"link as the top", tar("top -> secret"), "", ClassRefused, "use -L"},
		{"file through a link", tar("top/", "top/l -> .", "top/l/x"), "", ClassRefused, "not a directory"},
		{"file through an escaping link", tar("top/", "top/l -> ../../outside", "top/l/x"), "", ClassRefused, "use -L"},
		{"link through a link", tar("top/", "top/l -> .", "top/l/m -> x"), "", ClassRefused, "not a directory"},
		{"directory through a link", tar("top/", "top/l -> .", "top/l/d/"), "", ClassRefused, "not a directory"},
		{"link over a directory", tar("top/", "top/d/", "top/d -> .", "top/d/x"), "", ClassRefused, "more than once"},
		{"link over an implied directory", tar("top/d/x", "top/d -> ."), "", ClassRefused, "more than once"},
		{"link over a file", tar("top/", "top/f", "top/f -> ."), "", ClassRefused, "more than once"},
		{"file over a link", tar("top/", "top/f -> g", "top/f"), "", ClassRefused, "more than once"},

		{"hard link to a host file", tar("top/", "top/h => /etc/passwd"), "", ClassRefused, "absolute"},
		{"hard link out", tar("top/", "top/h => ../outside/secret"), "", ClassRefused, `".."`},
		{"hard link beside the copy", tar("top/", "top/h => secret"), "secret", ClassRefused, "outside of"},
		{"hard link to what was there", tar("top/", "top/h => top/old"), "copy/old", ClassRefused, "not a file that came before"},
		{"hard link to a later file", tar("top/", "top/h => top/f", "top/f"), "", ClassRefused, "not a file that came before"},
		{"hard link to a link", tar("top/", "top/l -> f", "top/h => top/l"), "", ClassRefused, "not a file that came before"},
		{"hard link to a directory", tar("top/", "top/d/", "top/h => top/d"), "", ClassRefused, "not a file that came before"},
		{"hard link to itself", tar("top/", "top/h => top/h"), "", ClassRefused, "not a file that came before"},
		{"file through a hard link", tar("top/", "top/f", "top/h => top/f", "top/h/x"), "", ClassRefused, "not a directory"},

		{"character device", tar("top/", "top/d !3"), "", ClassRefused, "device"},
		{"block device", tar("top/", "top/d !4"), "", ClassRefused, "device"},
		{"fifo", tar("top/", "top/d !6"), "", ClassRefused, "fifo"},
		{"reserved type", patch(tar("top"), 0, map[int]string{156: "7"}), "", ClassRefused, "unknown type"},
		{"unknown type", patch(tar("top"), 0, map[int]string{156: "Z"}), "", ClassRefused, "unknown type"},
		{"sparse bomb", sparsePAX(t), "", ClassLimit, "bytes"},
		{"sparse bomb in the old format", sparseGNU(t), "", ClassRefused, "sparse"},

		{"file twice", tar("top/", "top/f", "top/f"), "", ClassRefused, "more than once"},
		{"file twice with detours", tar("top/", "top/f", "top/.//f"), "", ClassRefused, "more than once"},
		{"directory twice", tar("top/", "top/d/", "top/d/"), "", ClassRefused, "more than once"},
		{"top twice", tar("top/", "top/"), "", ClassRefused, "more than once"},
		{"file then directory", tar("top/", "top/f", "top/f/"), "", ClassRefused, "more than once"},
		{"file then parent", tar("top/", "top/f", "top/f/x"), "", ClassRefused, "not a directory"},
		{"top file then parent", tar("top", "top/x"), "", ClassRefused, "not a directory"},
		{"directory then file", tar("top/", "top/d/", "top/d"), "", ClassRefused, "more than once"},
		{"implied directory then file", tar("top/d/x", "top/d"), "", ClassRefused, "more than once"},

		{"existing link as parent", tar("top/", "top/l/x"), "copy/,copy/l@../../outside", ClassPath, "in the way of a directory"},
		{"existing link as top", tar("top/", "top/x"), "copy@../outside", ClassPath, "in the way of a directory"},
		{"existing link as directory", tar("top/", "top/l/"), "copy/,copy/l@../../outside", ClassPath, "in the way of a directory"},
		{"existing link as parent of a link", tar("top/", "top/l/x -> y"), "copy/,copy/l@../../outside", ClassPath, "in the way of a directory"},
		{"existing directory as file", tar("top/", "top/f"), "copy/f/", ClassPath, "a directory is in the way"},
		{"existing directory as link", tar("top/", "top/f -> x"), "copy/f/", ClassPath, "a directory is in the way"},
		{"existing file as directory", tar("top/", "top/f/"), "copy/f", ClassPath, "in the way of a directory"},

		{"nothing at all", nil, "", ClassTruncated, "ended before"},
		{"no entries", tar(), "", ClassCorrupt, "no entry"},
		{"not a tar", bytes.Repeat([]byte("{}"), 600), "", ClassCorrupt, "not a valid tar"},
		{"more after the end", append(tar("top"), "more"...), "", ClassCorrupt, "goes on"},
		{"endless padding", append(tar("top"), make([]byte, 2<<20)...), "", ClassCorrupt, "goes on"},
		{"an error page", []byte("<html>502 Bad Gateway</html>"), "", ClassTruncated, "ended before"},
	}
}

func nulName(t testing.TB) []byte {
	return bytes.ReplaceAll(tarOfPAX(t, "top/aXXb"), []byte("aXXb"), []byte("a\x00\x00b"))
}

func slashFile(t testing.TB) []byte {
	return patch(tarOf(t, "top/"), 0, map[int]string{156: "0"})
}

// TestHostileArchives checks, one threat at a time, that the extraction fails
// with the right class, leaves everything outside of the destination alone and
// no temporary file inside.
func TestHostileArchives(t *testing.T) {
	for _, tt := range hostileCases(t) {
		t.Run(tt.name, func(t *testing.T) {
			outside, dst := hostileDirs(t)
			for _, have := range strings.Split(tt.have, ",") {
				prepare(t, dst, have)
			}
			before := snapshot(t, outside)
			_, err := Unpack(t.Context(), bytes.NewReader(tt.archive), Target{Dir: dst, Name: "copy"}, UnpackOptions{})
			if ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error = %v (%q); want class %q and %q", err, ClassOf(err), tt.class, tt.wantErr)
			}
			if after := snapshot(t, outside); after != before {
				t.Errorf("outside changed from\n%s\nto\n%s", before, after)
			}
			checkInside(t, dst)
		})
	}
}

// TestExistingLinksAreReplaced: where a file or a link goes, an existing link
// or hard link gives way and what it names stays.
func TestExistingLinksAreReplaced(t *testing.T) {
	outside, dst := hostileDirs(t)
	prepare(t, dst, "copy/")
	prepare(t, dst, "copy/f@../../outside/secret")
	prepare(t, dst, "copy/l@../../outside/secret")
	if err := os.Link(filepath.Join(outside, "secret"), filepath.Join(dst, "copy", "h")); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, outside)
	archive := tarOf(t, "top/", "top/f", "top/h", "top/l -> f")
	if _, err := Unpack(t.Context(), bytes.NewReader(archive), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, outside); after != before {
		t.Errorf("outside changed from\n%s\nto\n%s", before, after)
	}
	for _, name := range []string{"f", "h", "l"} {
		if got, err := os.ReadFile(filepath.Join(dst, "copy", name)); string(got) != "new" {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	checkInside(t, dst)
}

// TestOutsideOfTopIsKept: what lies beside the copy belongs to the user.
func TestOutsideOfTopIsKept(t *testing.T) {
	_, dst := hostileDirs(t)
	write(t, filepath.Join(dst, "mine"), "mine")
	write(t, filepath.Join(dst, "copy", "mine"), "mine")
	if err := os.Chmod(filepath.Join(dst, "copy"), 0o710); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(t.Context(), bytes.NewReader(tarOf(t, "top/", "top/f")), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	got := snapshot(t, dst)
	for _, want := range []string{`"copy" drwx--x---`, `"copy/mine"`, `"copy/f"`, `"mine"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

// TestSpecialBitsAreCleared: a setuid program of the guest is nobody's here.
func TestSpecialBitsAreCleared(t *testing.T) {
	_, dst := hostileDirs(t)
	archive := patch(tarOf(t, "top/", "top/f"), 512, map[int]string{100: "0007777\x00"})
	archive = patch(archive, 0, map[int]string{100: "0007755\x00"})
	if _, err := Unpack(t.Context(), bytes.NewReader(archive), Target{Dir: dst, Name: "copy"}, UnpackOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := snapshot(t, dst); !strings.Contains(got, `"copy" drwxr-xr-x`) || !strings.Contains(got, `"copy/f" -rwxrwxrwx`) {
		t.Error(got)
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		limits Limits
		items  []item
		want   LimitName
	}{
		{Limits{Entries: 2}, []item{"top/", "top/a", "top/b"}, LimitEntries},
		// A directory that is only mentioned in a longer name is made, too.
		{Limits{Entries: 4}, []item{"top/a/b/c", "top/d/e"}, LimitEntries},
		{Limits{Entries: 4}, []item{"top/a/b/c", "top/a/b/", "top/a/", "top/", "top/f"}, LimitEntries},
		{Limits{Bytes: 5}, []item{"top/", "top/a", "top/b"}, LimitBytes},
		{Limits{NameBytes: 12}, []item{"top/", "top/a", "top/b"}, LimitNames},
		{Limits{NameBytes: 12}, []item{"top/", "top/a -> bbbb"}, LimitNames},
		{Limits{Path: 8}, []item{"top/", "top/abcde"}, LimitPath},
		{Limits{Path: 8}, []item{"top/", "top/a -> 123456789"}, LimitPath},
		{Limits{Depth: 3}, []item{"top/", "top/a/b/c"}, LimitDepth},
	}
	for _, tt := range tests {
		_, dst := hostileDirs(t)
		unpack := func(items []item) *Error {
			_, err := Unpack(t.Context(), bytes.NewReader(tarOf(t, items...)), Target{Dir: dst, Name: "copy"}, UnpackOptions{Limits: tt.limits})
			if err == nil {
				return nil
			}
			return err.(*Error)
		}
		if err := unpack(tt.items); err == nil || err.Class != ClassLimit || err.Limit != tt.want || err.Max == 0 {
			t.Errorf("%+v: %v; want the limit on %s", tt.limits, err, tt.want)
		}
		if err := unpack(tt.items[:len(tt.items)-1]); err != nil {
			t.Errorf("%+v within the limit: %v", tt.limits, err)
		}
		checkInside(t, dst)
	}
}

// TestMillionEntries: the default limits stop a flood of entries.
func TestMillionEntries(t *testing.T) {
	tree := newTree(Limits{}, false, true)
	hdr := item("top/x -> y").header()
	for i := range 1_000_000 {
		hdr.Name = "top/" + strconv.Itoa(i)
		if _, err := tree.add(hdr); err != nil {
			if ClassOf(err) != ClassLimit || i != 500_000 {
				t.Fatalf("entry %d: %v", i, err)
			}
			return
		}
	}
	t.Fatal("a million entries were accepted")
}

// hostileDirs makes a destination and, beside it, what must not be touched.
func hostileDirs(t testing.TB) (outside, dst string) {
	t.Helper()
	tmp := t.TempDir()
	outside, dst = filepath.Join(tmp, "outside"), filepath.Join(tmp, "dst")
	write(t, filepath.Join(outside, "secret"), "secret")
	write(t, filepath.Join(outside, "sub", "file"), "file")
	if err := os.Mkdir(dst, 0o755); err != nil {
		t.Fatal(err)
	}
	return outside, dst
}

// checkInside looks for what an extraction must never leave: temporary files,
// and something next to the destination and the untouched directory.
func checkInside(t testing.TB, dst string) {
	t.Helper()
	if got := snapshot(t, dst); strings.Contains(got, ".sandboxctl-") {
		t.Errorf("a temporary file is left:\n%s", got)
	}
	entries, err := os.ReadDir(filepath.Dir(dst))
	if err != nil || len(entries) != 2 {
		t.Errorf("beside the destination: %v, %v", entries, err)
	}
}
