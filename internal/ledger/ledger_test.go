package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenMakesAPrivateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".", recordsDir, goneDir, namesDir, locksDir} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o700 {
			t.Errorf("%s has mode %04o, want 0700", path, mode)
		}
	}
	if len(l.Owner()) != ownerLength {
		t.Errorf("owner is %q", l.Owner())
	}
	if again := open(t, dir); again.Owner() != l.Owner() {
		t.Errorf("owner was %q and is now %q", l.Owner(), again.Owner())
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"a file": {func(t *testing.T, dir string) { write(t, dir, "x") }, "cannot create the state directory"},
		"a directory that the group can write": {func(t *testing.T, dir string) {
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)); err != nil {
				t.Fatal(err)
			}
		}, "others can write to it"},
		"a cut owner file": {func(t *testing.T, dir string) {
			open(t, mkdir(t, dir))
			write(t, filepath.Join(dir, ownerFile), "abc")
		}, "does not hold 20 base32 characters"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			test.prepare(t, dir)
			_, err := Open(dir)
			refused, ok := errors.AsType[*StateDirError](err)
			if !ok {
				t.Fatalf("want a *StateDirError, got %v", err)
			}
			for _, part := range []string{test.want, dir, "SANDBOXCTL_STATE_DIR"} {
				if !strings.Contains(told(refused), part) {
					t.Errorf("%q does not mention %q", refused, part)
				}
			}
		})
	}
}

func TestOwnerIsOneAmongProcesses(t *testing.T) {
	dir := mkdir(t, filepath.Join(t.TempDir(), "state"))
	children := make([]*child, 6)
	for i := range children {
		children[i] = start(t, "owner", dir)
	}
	want := ""
	for _, c := range children {
		owner := c.finish(t)[0]
		if want == "" {
			want = owner
		}
		if owner != want || len(owner) != ownerLength {
			t.Errorf("one process says %q, another %q", owner, want)
		}
	}
}

func TestOpenRestoresDeletedIndex(t *testing.T) {
	l := open(t, t.TempDir())
	r := ready(t, l, "web")
	if err := os.RemoveAll(filepath.Join(l.dir, namesDir)); err != nil {
		t.Fatal(err)
	}
	l = open(t, l.dir)
	_, err := l.Begin(t.Context(), Intent{Name: "web", Driver: "fake"})
	if taken, ok := errors.AsType[*NameTakenError](err); !ok || taken.Existing.ID != r.ID {
		t.Fatalf("want the name to be taken by %s, got %v", r.ID, err)
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
