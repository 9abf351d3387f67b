package transfer

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// WriteFileAtomic writes dst through a temporary file in its directory that is put
// in its place once write has returned nil: a failure leaves nothing under the
// final name and an older file as it was. On Linux the temporary file has no name
// where the file system allows that, so that a kill leaves nothing behind either. The permission bits of mode are set exactly,
// whatever the umask; a zero mtime leaves the time of writing. A symbolic link
// at dst is replaced, not followed (StatDest resolves those the user meant).
// An error of write comes back as it is; others are of ClassPath.
func WriteFileAtomic(dst string, mode fs.FileMode, mtime time.Time, write func(io.Writer) error) error {
	root, err := os.OpenRoot(filepath.Dir(dst))
	if err != nil {
		return localError(filepath.Dir(dst), "cannot open the directory", err)
	}
	defer root.Close()
	name := filepath.Base(dst)
	if err := checkReplaceable(root, name); err != nil {
		return err
	}
	return replaceFile(root, name, mode, mtime, write)
}

// checkReplaceable refuses a name that is taken by something a file or a link
// must not take the place of. Renaming onto a device would, for root, replace
// it (think of /dev/null).
func checkReplaceable(root *os.Root, name string) error {
	fi, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return inRoot(root, name, "cannot look at the destination", err)
	}
	switch kindOf(fi.Mode()) {
	case KindFile, KindSymlink:
		return nil
	case KindDir:
		return inRoot(root, name, "a directory is in the way", nil)
	default:
		return inRoot(root, name, "a device, a fifo or a socket is in the way", nil)
	}
}

// replaceFile is WriteFileAtomic inside an open root.
func replaceFile(root *os.Root, name string, mode fs.FileMode, mtime time.Time, write func(io.Writer) error) (err error) {
	f, err := createFile(root, name)
	if err != nil {
		return inRoot(root, name, "cannot create the file", err)
	}
	defer func() {
		if err != nil {
			f.discard()
		}
	}()
	if err := write(&fileWriter{f: f.File, root: root, name: name}); err != nil {
		return err
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return inRoot(root, name, "cannot set its mode", err)
	}
	if !mtime.IsZero() {
		if err := f.setTime(mtime); err != nil {
			return inRoot(root, name, "cannot set its modification time", err)
		}
	}
	if err := f.place(name); err != nil {
		return inRoot(root, name, "cannot put the finished file in place", err)
	}
	return nil
}

// newFile is a file that is not under its final name yet.
type newFile struct {
	*os.File
	root *os.Root
	// tmp is its name meanwhile. It is empty for one without a name, which the
	// kernel removes when this process is killed.
	tmp string
}

// createFile makes a file in the directory of name: without a name of its own
// where the system and the file system can do that, else under a temporary one.
func createFile(root *os.Root, name string) (*newFile, error) {
	if f, err := createUnnamed(root, filepath.Dir(name)); err == nil {
		return &newFile{File: f, root: root}, nil
	}
	return createNamed(root, name)
}

func createNamed(root *os.Root, name string) (*newFile, error) {
	tmp := temporaryName(name)
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &newFile{File: f, root: root, tmp: tmp}, nil
}

// discard removes the file. What it has been given a name for stays only when
// that cannot be removed either.
func (f *newFile) discard() {
	f.Close()
	if f.tmp != "" {
		f.root.Remove(f.tmp)
	}
}

func (f *newFile) setTime(mtime time.Time) error {
	if f.tmp == "" {
		return setUnnamedTime(f.File, mtime)
	}
	return f.root.Chtimes(f.tmp, mtime, mtime)
}

// place closes the file and makes it the one of that name.
func (f *newFile) place(name string) error {
	if f.tmp == "" {
		err := linkUnnamed(f.root, f.File, name)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A link cannot take the place of a file, a rename can. Only between these
		// two calls a kill leaves a second name behind.
		tmp := temporaryName(name)
		if err := linkUnnamed(f.root, f.File, tmp); err != nil {
			return err
		}
		f.tmp = tmp
	}
	if err := f.Close(); err != nil {
		return err
	}
	return f.root.Rename(f.tmp, name)
}

// temporaryName is in the same directory, so that the rename cannot cross file
// systems, does not grow with the name, which may be 255 bytes already, and
// cannot be guessed by whoever wrote an archive.
func temporaryName(name string) string {
	return filepath.Join(filepath.Dir(name), ".sandboxctl-"+rand.Text()+".part")
}

// fileWriter marks a failed write (a full disk), which is the destination's
// fault and not the stream's, and hides the file's other methods from io.Copy.
type fileWriter struct {
	f    *os.File
	root *os.Root
	name string
}

func (w *fileWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if err != nil {
		err = inRoot(w.root, w.name, "cannot write the file", err)
	}
	return n, err
}

// inRoot is localError for a name in root.
func inRoot(root *os.Root, name, reason string, err error) error {
	return localError(filepath.Join(root.Name(), name), reason, err)
}
