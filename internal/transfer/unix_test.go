//go:build unix

package transfer

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asOrdinaryUser runs the rest of the test without root's powers, for which no
// mode is a hindrance. The ids belong to the process, so such tests are not
// parallel.
func asOrdinaryUser(t *testing.T, dirs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	for _, dir := range dirs {
		if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Setreuid(-1, nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setreuid(-1, 0); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReadOnlyRoundTrip: a directory that nobody may write to is filled first
// and closed afterwards, also for a user who is bound by modes.
func TestReadOnlyRoundTrip(t *testing.T) {
	srcDir, dst := t.TempDir(), t.TempDir()
	asOrdinaryUser(t, srcDir, dst)
	src := filepath.Join(srcDir, "src")
	write(t, filepath.Join(src, "closed", "inner", "f"), "x")
	symlink(t, "f", filepath.Join(src, "closed", "inner", "l"))
	chmod := func(dir string, mode os.FileMode, names ...string) {
		for _, name := range names {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	chmod(src, 0o444, "closed/inner/f")
	chmod(src, 0o555, "closed/inner", "closed", ".")
	t.Cleanup(func() {
		for _, dir := range []string{src, filepath.Join(dst, "copy")} {
			chmod(dir, 0o755, ".", "closed", "closed/inner")
		}
	})
	if _, _, err := roundTrip(t, src, dst, "copy", PackOptions{}); err != nil {
		t.Fatal(err)
	}
	if want, got := snapshot(t, src), snapshot(t, filepath.Join(dst, "copy")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// The same again meets read-only directories, which stay as they are.
	_, _, err := roundTrip(t, src, dst, "copy", PackOptions{})
	if ClassOf(err) != ClassPath || !errors.Is(err, os.ErrPermission) {
		t.Errorf("copied over a read-only directory: %v", err)
	}
}

// TestClosedDirectories: a directory without the search bit is closed after the
// directories in it.
func TestClosedDirectories(t *testing.T) {
	dst := t.TempDir()
	asOrdinaryUser(t, dst)
	data := patch(tarOf(t, "top/", "top/d/", "top/d/f"), 0, map[int]string{100: "0000000\x00"})
	_, err := Unpack(t.Context(), bytes.NewReader(data), Target{Dir: dst, Name: "copy"}, UnpackOptions{})
	top := filepath.Join(dst, "copy")
	if fi, statErr := os.Lstat(top); err != nil || statErr != nil || fi.Mode().Perm() != 0 {
		t.Errorf("mode %v, %v, %v", fi.Mode(), err, statErr)
	}
	if err := os.Chmod(top, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := snapshot(t, top); !strings.Contains(got, `"d" drwxr-xr-x`) {
		t.Error(got)
	}
}

func TestUnreadableFile(t *testing.T) {
	src := t.TempDir()
	asOrdinaryUser(t, src)
	write(t, filepath.Join(src, "secret"), "x")
	if err := os.Chmod(filepath.Join(src, "secret"), 0); err != nil {
		t.Fatal(err)
	}
	_, err := Pack(t.Context(), io.Discard, src, PackOptions{Name: "n"})
	if ClassOf(err) != ClassPath || !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// TestUmask: modes come from the archive alone.
func TestUmask(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), t.TempDir()
	write(t, filepath.Join(src, "f"), "x")
	for _, name := range []string{"", "f"} {
		if err := os.Chmod(filepath.Join(src, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	defer syscall.Umask(syscall.Umask(0o077))
	if _, _, err := roundTrip(t, src, dst, "copy", PackOptions{}); err != nil {
		t.Fatal(err)
	}
	if want, got := snapshot(t, src), snapshot(t, filepath.Join(dst, "copy")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSpecialFiles: nothing is left out in silence, and nothing is waited for.
func TestSpecialFiles(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	write(t, filepath.Join(src, "f"), "x")
	fifo, socket := filepath.Join(src, "fifo"), filepath.Join(src, "socket")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	got, stats := packBytes(t, src, PackOptions{Name: "n"})
	if len(got) != 2 || got["n/f"] == nil {
		t.Errorf("entries %v", got)
	}
	skipped := strings.Join(stats.Skipped, "\n")
	if len(stats.Skipped) != 2 || !strings.Contains(skipped, "/fifo") || !strings.Contains(skipped, "/socket") {
		t.Errorf("skipped %q", stats.Skipped)
	}
	for _, path := range []string{fifo, socket, "/dev/null"} {
		if _, err := Pack(t.Context(), io.Discard, path, PackOptions{Name: "n"}); ClassOf(err) != ClassPath || !strings.Contains(err.Error(), "a device, a fifo or a socket") {
			t.Errorf("%s as the source: %v", path, err)
		}
	}
	if err := WriteFileAtomic(fifo, 0o644, epoch, nil); ClassOf(err) != ClassPath || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("a fifo as the destination: %v", err)
	}
}

// TestFullDisk has the kernel refuse a write in the middle of a file. A limit on
// the file size takes the same way as a full disk, and needs no disk to fill.
func TestFullDisk(t *testing.T) {
	const limit = 8 << 20 // more than the test log that go test itself writes
	src, dst := filepath.Join(t.TempDir(), "src"), t.TempDir()
	write(t, filepath.Join(src, "a"), "small")
	write(t, filepath.Join(src, "b"), strings.Repeat("x", 2*limit))
	limitFileSize(t, limit)
	_, _, err := roundTrip(t, src, dst, "copy", PackOptions{})
	if ClassOf(err) != ClassPath || !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "copy/b") {
		t.Errorf("error = %v", err)
	}
	if got := snapshot(t, dst); strings.Contains(got, ".sandboxctl-") || strings.Contains(got, "copy/b") || !strings.Contains(got, "copy/a") {
		t.Errorf("left behind:\n%s", got)
	}
}

func limitFileSize(t *testing.T, size uint64) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limited := before
	limited.Cur = size
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
		signal.Reset(syscall.SIGXFSZ)
	})
}
