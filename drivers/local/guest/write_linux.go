package guest

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func notRegular(path string) string { return strconv.Quote(path) + " is not a regular file" }

// write replaces a file's content with what comes on stdin. It is written beside the
// file and put in its place when the driver has said that it is whole, so that no half
// file ever has the name. A symbolic link is followed.
func (c *conversation) write(request *File, path string) error {
	path, err := resolve(path)
	if err != nil {
		return err
	}
	existing, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		existing = nil
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
	case err != nil:
		return err
	case existing.IsDir():
		return unix.EISDIR
	case !existing.Mode().IsRegular():
		return &Error{Reason: ReasonNotRegular, Path: request.Path, Message: notRegular(string(request.Path))}
	}

	temporary, err := os.CreateTemp(filepath.Dir(path), ".sandboxctl-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	defer temporary.Close()
	// The rest runs against the driver's end: it may give up while stdin is waited for.
	committed := make(chan bool, 1)
	go c.awaitCommit(committed, func() { _ = os.Remove(temporary.Name()) })
	if _, err := copyContent(temporary, os.Stdin, math.MaxInt64); err != nil {
		return err
	}
	<-committed
	if err := dress(temporary, existing, os.FileMode(request.Mode)); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return err
	}
	c.reply(Reply{Done: true})
	return nil
}

// awaitCommit waits for the driver's word that all was sent. Without it, the process
// ends here, after undo.
func (c *conversation) awaitCommit(committed chan<- bool, undo func()) {
	control, ok := c.next()
	if !ok || !control.Commit {
		undo()
		os.Exit(1)
	}
	committed <- true
}

// dress gives a new content the looks of the file that it replaces, or a new file's.
func dress(file *os.File, existing os.FileInfo, mode os.FileMode) error {
	if existing == nil {
		return unix.Fchmod(int(file.Fd()), uint32(mode)&0o7777)
	}
	if raw, ok := existing.Sys().(*syscall.Stat_t); ok {
		if err := file.Chown(int(raw.Uid), int(raw.Gid)); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(file.Fd()), modeBits(existing))
}

// resolve follows symbolic links in the last element, also one that points to nothing
// yet. Links before it are the kernel's business.
func resolve(path string) (string, error) {
	const mostLinks = 40
	for range mostLinks {
		target, err := os.Readlink(path)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Dir(path) + "/" + target
		}
		path = target
	}
	return "", unix.ELOOP
}
