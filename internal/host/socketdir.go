package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// socketPathLimit is the shortest of the systems' limits for a socket's path,
	// macOS's 104 bytes with the final NUL.
	socketPathLimit = 103
	// socketPathTail is what go-plugin adds to our directory:
	// "/plugin-dir<10 digits>/plugin<10 digits>".
	socketPathTail = 1 + 10 + 10 + 1 + 6 + 10
	socketDirName  = "plugin-dir"
)

const (
	// staleAge is how old a directory must be to be looked at: between making and
	// locking it, a directory of a live host looks like that of a dead one.
	staleAge = time.Minute
	// sweepLimit bounds what one start looks at, so that it stays quick after
	// thousands of crashes; the next start goes on.
	sweepLimit = 32
)

// socketBase returns a directory for sockets that is ours alone and short enough,
// and makes it. The driver's directory inside it is go-plugin's.
func (h *Host) socketBase() (string, error) {
	var problems []error
	for _, dir := range h.socketBases() {
		if len(dir)+socketPathTail > socketPathLimit {
			problems = append(problems, fmt.Errorf("%s is too long for a socket", dir))
			continue
		}
		if err := ownDirectory(dir); err != nil {
			problems = append(problems, err)
			continue
		}
		return dir, nil
	}
	return "", errors.Join(problems...)
}

// socketBases are the places to try. The user's runtime directory is not swept by
// anybody while the user is logged in, as /tmp may be. The state directory comes
// last, since it may be on a file system that has no sockets.
func (h *Host) socketBases() []string {
	const name = "sandboxctl"
	var bases []string
	if dir, _ := h.environ.lookup("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		bases = append(bases, filepath.Join(dir, name))
	}
	private := name
	if h.goos != "windows" {
		private = fmt.Sprintf("%s-%d", name, os.Geteuid())
	}
	for _, variable := range []string{"TMPDIR", "TEMP"} {
		if dir, _ := h.environ.lookup(variable); filepath.IsAbs(dir) {
			bases = append(bases, filepath.Join(dir, private))
		}
	}
	if h.goos != "windows" {
		bases = append(bases, filepath.Join("/tmp", private))
	}
	if h.options.StateDir != "" {
		bases = append(bases, filepath.Join(h.options.StateDir, "run"))
	}
	return bases
}

// sweep removes directories of hosts that are dead. A live host holds a lock on its
// driver's directory; unlike a process number, a lock is true across containers
// that share /tmp.
func sweep(base string) {
	dir, err := os.Open(base)
	if err != nil {
		return
	}
	defer dir.Close()
	entries, _ := dir.ReadDir(sweepLimit)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), socketDirName) {
			continue
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < staleAge {
			continue
		}
		path := filepath.Join(base, entry.Name())
		if unlock, ok := lockDirectory(path); ok {
			_ = os.RemoveAll(path)
			unlock()
		}
	}
}
