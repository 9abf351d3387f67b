package ledger

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallDisk mounts a file system of 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT TESTED: a full disk needs root to mount a small one")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("SKIPPED, NOT TESTED: a full disk needs a small mount, and mounting fails here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("the mount stays: %v", err)
		}
	})
	return dir
}

func fillDisk(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk ended with %v", err)
	}
	return ballast
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t)
	l := open(t, dir)
	r, dropped := ready(t, l, "web"), begin(t, l, "intent")
	ballast := fillDisk(t, dir)
	before := files(t, dir)

	for what, try := range map[string]func() error{
		"begin":    func() error { _, err := l.Begin(t.Context(), Intent{Name: "new", Driver: "fake"}); return err },
		"nameless": func() error { _, err := l.Begin(t.Context(), Intent{Driver: "fake"}); return err },
		"renew":    func() error { _, err := l.SetExpiry(t.Context(), r.ID, time.Now()); return err },
		"create":   func() error { _, err := l.SetCreated(t.Context(), dropped.ID, []byte("h")); return err },
	} {
		err := try()
		full, ok := errors.AsType[*StateDirError](err)
		if !ok || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(full.Hint(), "free some space") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if after := files(t, dir); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("failed writes changed the files from %v to %v", before, after)
	}
	if records, problems, err := l.List(t.Context(), Filter{}); len(records) != 2 || len(problems) > 0 || err != nil {
		t.Errorf("ls on a full disk: %v, %v, %v", names(records), problems, err)
	}
	prune(t, l, time.Now())

	// Cleaning up must work on a full disk, or it stays full.
	if after, err := l.SetGone(t.Context(), r.ID, "removed"); err != nil || after.State != StateGone || after.GoneAt.IsZero() {
		t.Errorf("rm on a full disk: %+v, %v", after, err)
	}
	if err := l.Drop(t.Context(), dropped.ID); err != nil {
		t.Errorf("drop on a full disk: %v", err)
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("want only the ballast, got %v", left)
	}
	removeFile(t, ballast)
	begin(t, l, "web")
}

func TestFreshDirectoryOnAFullDisk(t *testing.T) {
	disk := smallDisk(t)
	dir := mkdir(t, filepath.Join(disk, "state"))
	ballast := fillDisk(t, disk)
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if records, _, err := l.List(t.Context(), Filter{}); len(records) > 0 || err != nil {
		t.Errorf("ls: %v, %v", records, err)
	}
	if _, err := l.Begin(t.Context(), Intent{Driver: "fake"}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("begin: %v", err)
	}
	removeFile(t, ballast)
	if l = open(t, dir); l.Owner() == "" {
		t.Error("there is no owner although there is space")
	}
	begin(t, l, "web")
}

// An ordinary user whose state directory is read-only can list and find, and is told what to do on a change.
func TestReadOnlyDirectory(t *testing.T) {
	// Neither go test's binary nor t.TempDir can be reached by another user.
	base, err := os.MkdirTemp("", "ledger-")
	if err != nil {
		t.Fatal(err)
	}
	dir := mkdir(t, filepath.Join(base, "state"))
	t.Cleanup(func() {
		// Without write permission an ordinary user cannot remove what is inside.
		_ = filepath.WalkDir(base, func(path string, entry os.DirEntry, err error) error {
			if entry != nil && entry.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	l := open(t, dir)
	r := ready(t, l, "kept")

	binary := filepath.Join(base, "test")
	copyFile(t, os.Args[0], binary)
	cmd := exec.Command(binary, dir)
	uid := os.Geteuid()
	if uid == 0 {
		uid = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		mode := os.FileMode(0o400)
		if entry.IsDir() {
			mode = 0o500
		}
		return errors.Join(err, os.Chmod(path, mode), os.Chown(path, uid, -1))
	})
	if err := errors.Join(err, os.Chmod(base, 0o755), os.Chmod(binary, 0o755)); err != nil {
		t.Fatal(err)
	}
	lines := startCommand(t, cmd, "readonly").finish(t)
	if want := "1 " + r.ID + " " + l.Owner(); lines[0] != want {
		t.Errorf("read %q, want %q", lines[0], want)
	}
	for _, line := range lines[1:] {
		for _, part := range []string{"permission denied", dir, "make it writable"} {
			if !strings.Contains(line, part) {
				t.Errorf("%q does not mention %q", line, part)
			}
		}
	}
}

func TestDirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT TESTED: giving a directory away needs root")
	}
	dir := mkdir(t, filepath.Join(t.TempDir(), "state"))
	if err := os.Chown(dir, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "belongs to user id 65534") {
		t.Errorf("got %v", err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o700); err != nil {
		t.Fatal(err)
	}
}
