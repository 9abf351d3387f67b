package guest

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// put extracts a tar stream from stdin into a directory. Links in the directory are
// followed where the guest's own programs would follow them: all of it is the guest's,
// and there is nothing here that could be escaped to. Owners are not restored. When the
// driver gives up, stdin ends early and the archive is a broken one.
func (c *conversation) put(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	input := bufio.NewReaderSize(os.Stdin, copyBuffer)
	extraction := &extraction{dir: dir}
	err := extraction.run(tar.NewReader(input))
	drain(input)
	if err != nil {
		return err
	}
	c.reply(Reply{Done: true})
	return nil
}

type extraction struct {
	dir string
	// directories are given their modes and times last: what is put into them changes
	// the latter and may need more than the former.
	directories []*tar.Header
}

func (e *extraction) run(archive *tar.Reader) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return e.finishDirectories()
		}
		if err != nil {
			return &Error{Reason: ReasonArchive, Message: "the archive cannot be read: " + err.Error()}
		}
		name := strings.TrimSuffix(header.Name, "/")
		if !filepath.IsLocal(name) {
			return &Error{Reason: ReasonArchive, Message: "the archive names " + strconv.Quote(header.Name) + ", which is outside of the directory"}
		}
		err = e.entry(archive, header, filepath.Join(e.dir, name))
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &Error{Reason: ReasonArchive, Message: "the archive ends in the middle of " + strconv.Quote(name)}
		}
		if err != nil {
			return pathError(name, err)
		}
	}
}

func (e *extraction) entry(archive *tar.Reader, header *tar.Header, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		header.Name = path
		e.directories = append(e.directories, header)
		err := os.Mkdir(path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			return mustBeDirectory(path)
		}
		return err
	case tar.TypeReg:
		return extractFile(archive, header, path)
	case tar.TypeSymlink:
		if err := makeRoom(path); err != nil {
			return err
		}
		return os.Symlink(header.Linkname, path)
	case tar.TypeLink:
		if !filepath.IsLocal(header.Linkname) {
			return &Error{Reason: ReasonArchive, Message: "the archive links to " + strconv.Quote(header.Linkname) + ", which is outside of the directory"}
		}
		if err := makeRoom(path); err != nil {
			return err
		}
		return os.Link(filepath.Join(e.dir, header.Linkname), path)
	}
	return &Error{Reason: ReasonArchive, Message: "the archive holds a device, FIFO or other special file, " + strconv.Quote(header.Name)}
}

func mustBeDirectory(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return unix.ENOTDIR
	}
	return err
}

func extractFile(archive *tar.Reader, header *tar.Header, path string) error {
	if err := makeRoom(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = copyContent(file, archive, math.MaxInt64)
	err = errors.Join(err, unix.Fchmod(int(file.Fd()), uint32(header.Mode)&0o7777), file.Close())
	if err != nil {
		// No half-written file keeps the name.
		return errors.Join(err, os.Remove(path))
	}
	return setTime(path, header.ModTime)
}

// makeRoom removes what an entry replaces. A directory is not replaced by a file.
func makeRoom(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return unix.EISDIR
	}
	return os.Remove(path)
}

func (e *extraction) finishDirectories() error {
	for _, header := range e.directories {
		if err := os.Chmod(header.Name, fs.FileMode(header.Mode).Perm()); err != nil {
			return err
		}
		if err := setTime(header.Name, header.ModTime); err != nil {
			return err
		}
	}
	return nil
}

func setTime(path string, modified time.Time) error {
	if modified.IsZero() || modified.Unix() == 0 {
		return nil
	}
	return os.Chtimes(path, time.Time{}, modified)
}
