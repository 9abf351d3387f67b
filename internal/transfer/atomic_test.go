package transfer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// placing are the ways in which a finished file gets its name.
var placing = map[string]func(*os.Root, string) (*newFile, error){"best": createFile, "named": createNamed}

// TestPlace: a new file takes a free name, and the place of a file and of a link,
// whichever way it was made, and leaves no second name.
func TestPlace(t *testing.T) {
	for way, create := range placing {
		for _, have := range []string{"", "d/f", "d/f@elsewhere"} {
			t.Run(way+" "+have, func(t *testing.T) {
				dir := t.TempDir()
				prepare(t, dir, "d/")
				prepare(t, dir, have)
				root, err := os.OpenRoot(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer root.Close()
				f, err := create(root, "d/f")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString("new"); err != nil {
					t.Fatal(err)
				}
				when := time.Unix(1_700_000_000, 0)
				if err := errors.Join(f.Chmod(0o640), f.setTime(when), f.place("d/f")); err != nil {
					t.Fatal(err)
				}
				content, err := os.ReadFile(filepath.Join(dir, "d", "f"))
				if err != nil || string(content) != "new" {
					t.Errorf("content = %q, %v", content, err)
				}
				fi, err := os.Lstat(filepath.Join(dir, "d", "f"))
				if err != nil {
					t.Fatal(err)
				}
				if !fi.Mode().IsRegular() || fi.ModTime().Unix() != when.Unix() {
					t.Errorf("mode %v, time %v", fi.Mode(), fi.ModTime())
				}
				if names := namesIn(t, filepath.Join(dir, "d")); len(names) != 1 {
					t.Errorf("the directory holds %q", names)
				}
			})
		}
	}
}

// TestFailedWriteLeavesNothing: whichever way the file was made.
func TestFailedWriteLeavesNothing(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "f")
	broken := errors.New("broken")
	err := WriteFileAtomic(dst, 0o644, time.Time{}, func(w io.Writer) error {
		if _, err := w.Write([]byte("half")); err != nil {
			t.Error(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("error = %v", err)
	}
	if names := namesIn(t, filepath.Dir(dst)); len(names) != 0 {
		t.Errorf("the directory holds %q", names)
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
