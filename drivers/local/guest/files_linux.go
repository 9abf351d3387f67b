package guest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// copyBuffer is how much is moved at once between files and the driver's pipes.
const copyBuffer = 256 << 10

// file carries out one operation on a file.
func (c *conversation) file(request *File) {
	path := string(request.Path)
	if err := checkPath(path); err != nil {
		c.fail(err)
		return
	}
	if !filepath.IsAbs(path) {
		// Joined and not cleaned: what ".." means depends on links in the path.
		path = strings.TrimSuffix(string(request.Workdir), "/") + "/" + path
	}
	err := c.carryOut(request, path)
	if err != nil {
		c.fail(pathError(string(request.Path), err))
	}
}

func (c *conversation) carryOut(request *File, path string) error {
	switch request.Op {
	case OpStat:
		info, err := stat(path, request.Follow)
		if err != nil {
			return err
		}
		c.reply(Reply{Info: info})
		return nil
	case OpWrite:
		return c.write(request, path)
	case OpPut:
		return c.put(path)
	}
	// What only sends can be ended at any time.
	go c.exitWhenGone()
	var err error
	switch request.Op {
	case OpList:
		err = list(path)
	case OpRead:
		err = read(request, path)
	case OpGet:
		err = get(path, request.Follow)
	default:
		return &Error{Reason: ReasonRequest, Message: "the request's operation is unknown"}
	}
	if err == nil {
		c.reply(Reply{Done: true})
	}
	return err
}

// exitWhenGone ends the process when the driver gives up, whatever it is waiting for.
func (c *conversation) exitWhenGone() {
	for {
		if _, ok := c.next(); !ok {
			os.Exit(1)
		}
	}
}

func checkPath(path string) *Error {
	switch {
	case path == "":
		return &Error{Reason: ReasonInvalid, Message: "the path is empty"}
	case strings.ContainsRune(path, 0):
		return &Error{Reason: ReasonInvalid, Path: []byte(path), Message: "the path holds a NUL byte"}
	}
	return nil
}

func stat(path string, follow bool) (*Info, error) {
	look := os.Lstat
	if follow {
		look = os.Stat
	}
	found, err := look(path)
	if err != nil {
		return nil, err
	}
	info := describe(found)
	if info.Kind == KindSymlink {
		target, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		info.Target = []byte(target)
	}
	return info, nil
}

func describe(found os.FileInfo) *Info {
	info := &Info{Name: []byte(found.Name()), Size: found.Size(), Mode: modeBits(found), ModTime: found.ModTime()}
	switch found.Mode().Type() {
	case 0:
		info.Kind = KindFile
	case os.ModeDir:
		info.Kind = KindDirectory
	case os.ModeSymlink:
		info.Kind = KindSymlink
	default:
		info.Kind = KindOther
	}
	return info
}

// modeBits returns the twelve bits that chmod sets.
func modeBits(found os.FileInfo) uint32 {
	if raw, ok := found.Sys().(*syscall.Stat_t); ok {
		return raw.Mode & 0o7777
	}
	return uint32(found.Mode().Perm())
}

func list(path string) error {
	// The trailing slash makes a link to a directory the directory, and anything
	// else an error.
	entries, err := os.ReadDir(path + "/")
	if err != nil {
		return err
	}
	output := bufio.NewWriterSize(os.Stdout, copyBuffer)
	encoder := json.NewEncoder(output)
	for _, entry := range entries {
		info, err := stat(path+"/"+entry.Name(), false)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := encoder.Encode(info); err != nil {
			return err
		}
	}
	return output.Flush()
}

func read(request *File, path string) error {
	file, info, err := openRegular(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if request.MaxBytes > 0 && info.Size() > request.MaxBytes {
		return &Error{Reason: ReasonTooLarge, Path: request.Path, Size: info.Size(), Message: "the file is too large"}
	}
	limit := request.MaxBytes
	if limit == 0 {
		limit = 1<<63 - 1
	}
	// Copied through a buffer of our own: the size of files in /proc is not to be
	// trusted, and so is that of a file that grows.
	copied, err := copyContent(os.Stdout, file, limit)
	if err != nil {
		return err
	}
	if copied == limit {
		if n, _ := file.Read(make([]byte, 1)); n > 0 {
			return &Error{Reason: ReasonTooLarge, Path: request.Path, Size: copied + 1, Message: "the file is too large"}
		}
	}
	return nil
}

// openRegular opens a regular file and nothing else: a FIFO would block, and a device
// may never end.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		if err == unix.ENXIO {
			// A socket, or a FIFO that nobody reads.
			return nil, nil, &Error{Reason: ReasonNotRegular, Path: []byte(path), Message: notRegular(path)}
		}
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = unix.EISDIR
	case !info.Mode().IsRegular():
		err = &Error{Reason: ReasonNotRegular, Path: []byte(path), Message: notRegular(path)}
	default:
		return file, info, nil
	}
	_ = file.Close()
	return nil, nil, err
}

// copyContent copies at most limit bytes.
func copyContent(to io.Writer, from io.Reader, limit int64) (int64, error) {
	// Wrapped, so that io does not try splice and the like, which the guest's kernel
	// only emulates.
	return io.CopyBuffer(onlyWriter{to}, io.LimitReader(from, limit), make([]byte, copyBuffer))
}

type onlyWriter struct{ io.Writer }
