package guest

import (
	"archive/tar"
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// get writes the entry at path, and what is below it, to stdout as a tar stream.
func get(path string, follow bool) error {
	look := os.Lstat
	if follow {
		look = os.Stat
	}
	info, err := look(path)
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	if name == "/" || name == "." || name == ".." {
		// The entry itself has no name of its own to start with.
		name = "."
	}
	output := bufio.NewWriterSize(os.Stdout, copyBuffer)
	archive := &archiver{out: tar.NewWriter(output), follow: follow, links: map[fileID]string{}}
	if err := archive.add(path, name, info, nil); err != nil {
		return err
	}
	if err := archive.out.Close(); err != nil {
		return err
	}
	return output.Flush()
}

type archiver struct {
	out    *tar.Writer
	follow bool
	// links holds the names of files that have more than one.
	links map[fileID]string
}

type fileID struct{ device, inode uint64 }

// add writes one entry. above lists the directories that lead to it, so that links
// that are followed do not lead round in circles.
func (a *archiver) add(path, name string, info os.FileInfo, above []fileID) error {
	raw := info.Sys().(*syscall.Stat_t)
	id := fileID{raw.Dev, raw.Ino}
	header := &tar.Header{Name: name, Mode: int64(modeBits(info)), ModTime: info.ModTime(), Uid: int(raw.Uid), Gid: int(raw.Gid), Format: tar.FormatPAX}
	switch info.Mode().Type() {
	case 0:
		return a.addFile(path, header, id, raw.Nlink > 1)
	case os.ModeDir:
		return a.addDirectory(path, header, append(above, id))
	case os.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		header.Typeflag, header.Linkname = tar.TypeSymlink, target
		return a.out.WriteHeader(header)
	case os.ModeNamedPipe:
		header.Typeflag = tar.TypeFifo
		return a.out.WriteHeader(header)
	}
	return &Error{Reason: ReasonNotRegular, Path: []byte(path), Message: strconv.Quote(path) + " is a device or a socket and cannot be copied"}
}

func (a *archiver) addFile(path string, header *tar.Header, id fileID, linked bool) error {
	if first, known := a.links[id]; known && !a.follow {
		header.Typeflag, header.Linkname = tar.TypeLink, first
		return a.out.WriteHeader(header)
	}
	if linked {
		a.links[id] = header.Name
	}
	file, info, err := openRegular(path)
	if err != nil {
		return pathError(path, err)
	}
	defer file.Close()
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := a.out.WriteHeader(header); err != nil {
		return err
	}
	copied, err := copyContent(a.out, file, header.Size)
	if err != nil {
		return err
	}
	if copied < header.Size {
		return &Error{Reason: ReasonOther, Path: []byte(path), Message: strconv.Quote(path) + " became shorter while it was copied"}
	}
	return nil
}

func (a *archiver) addDirectory(path string, header *tar.Header, above []fileID) error {
	self := above[len(above)-1]
	for _, parent := range above[:len(above)-1] {
		if parent == self {
			return &Error{Reason: ReasonInvalid, Path: []byte(path), Message: strconv.Quote(path) + " is a link to a directory that contains it; copy without following links"}
		}
	}
	header.Typeflag = tar.TypeDir
	header.Name += "/"
	if err := a.out.WriteHeader(header); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return pathError(path, err)
	}
	for _, entry := range entries {
		if err := a.addChild(path, header.Name, entry.Name(), above); err != nil {
			return err
		}
	}
	return nil
}

func (a *archiver) addChild(dir, prefix, name string, above []fileID) error {
	child := dir + "/" + name
	info, err := os.Lstat(child)
	if a.follow && err == nil && info.Mode()&os.ModeSymlink != 0 {
		// A link to nothing stays a link.
		if followed, err := os.Stat(child); err == nil {
			info = followed
		}
	}
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.add(child, prefix+name, info, above)
}

// drain reads what is left of an archive, so that the driver is not stopped by a full
// pipe before it has seen the reply.
func drain(from io.Reader) {
	_, _ = io.CopyBuffer(onlyWriter{io.Discard}, from, make([]byte, copyBuffer))
}
