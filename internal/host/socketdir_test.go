//go:build unix

package host

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestLongTemporaryDirectory(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 200))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, func(o *Options) {
		o.Environ = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + long, "XDG_RUNTIME_DIR=/no/such"}
	}, "good")
	driver := start(t, h, "good")
	if _, err := driver.List(t.Context(), plugin.ListRequest{}); err != nil {
		t.Error(err)
	}
	dir := driver.link.(*subprocess).socketDir
	driver.Close()
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

func TestSocketBaseMustBePrivate(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"open to others": func(dir string) error { return os.Chmod(dir, 0o755) },
		"a link": func(dir string) error {
			if err := os.Rename(dir, dir+"-real"); err != nil {
				return err
			}
			return os.Symlink(dir+"-real", dir)
		},
		"parent open to others": func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "base")
			if err := ownDirectory(dir); err != nil {
				t.Fatal(err)
			}
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			if err := ownDirectory(dir); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestNoSocketDirectoryIsOneSentence(t *testing.T) {
	long := "/" + strings.Repeat("x", 100)
	h := newHost(t, func(o *Options) { o.StateDir, o.Environ = long, []string{"TMPDIR=" + long, "XDG_RUNTIME_DIR=/no/such"} }, "good")
	h.goos = "windows" // where /tmp is no last resort
	_, err := h.Start(t.Context(), "good")
	wantStartError(t, err, ReasonEnvironment, "private directory", "too long", "/no/such")
}

func TestSweepRemovesOnlyWhatDeadHostsLeft(t *testing.T) {
	base := t.TempDir()
	old := time.Now().Add(-2 * staleAge)
	add := func(name string, age time.Time) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "plugin1"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, age, age); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dead, live, fresh, foreign := add("plugin-dir1", old), add("plugin-dir2", old), add("plugin-dir3", time.Now()), add("other", old)
	unlock, ok := lockDirectory(live)
	if !ok {
		t.Fatal("cannot lock")
	}
	defer unlock()
	sweep(base)
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the dead host's directory is left: %v", err)
	}
	for _, path := range []string{live, fresh, foreign} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
}

func TestRunningDriverHoldsItsLock(t *testing.T) {
	driver := start(t, newHost(t, nil, "good"), "good")
	if unlock, ok := lockDirectory(driver.link.(*subprocess).socketDir); ok {
		unlock()
		t.Error("a sweep would take the directory of a running driver")
	}
}

func TestConcurrentStarts(t *testing.T) {
	h := newHost(t, nil, "good", "other")
	var group sync.WaitGroup
	for _, name := range []string{"good", "other", "good", "other"} {
		group.Go(func() {
			driver, err := h.Start(t.Context(), name)
			if err != nil {
				t.Error(err)
				return
			}
			defer driver.Close()
			list, err := driver.List(t.Context(), plugin.ListRequest{})
			if err != nil || list.Sandboxes[0].Name != name {
				t.Errorf("%v %v", list, err)
			}
		})
	}
	group.Wait()
}
