//go:build linux

package modaldouble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	// fileHelper is the program that the service puts into every sandbox and
	// the vendor's clients run for each file operation.
	fileHelper = "/__modal/.bin/modal-sandbox-fs-tools"
	// maxFileRead is the size above which the helper refuses to read.
	maxFileRead = 5 << 30
	// unreadFile is how far a file read may run ahead of its reader: clients
	// wait for the helper to exit before they read anything.
	unreadFile = 1 << 30
)

// errUploadAborted is what the helper reads when its exec ends before its input
// was closed in order.
var errUploadAborted = errors.New("input ended without an end marker")

// helperRequest is the helper's only argument. Exactly one field is set.
type helperRequest struct {
	WriteFile     *pathArgument
	ReadFile      *pathArgument
	ListFiles     *pathArgument
	Stat          *pathArgument
	MakeDirectory *struct {
		Path    string `json:"path"`
		Parents bool   `json:"parents"`
	}
	Remove *struct {
		Path      string `json:"path"`
		Recursive bool   `json:"recursive"`
	}
}

type pathArgument struct {
	Path string `json:"path"`
}

// fileEntry is the helper's description of one file, not following links.
type fileEntry struct {
	Name          string  `json:"name"`
	Path          string  `json:"path"`
	Type          string  `json:"type"`
	Size          int64   `json:"size"`
	Mode          uint32  `json:"mode"`
	Permissions   string  `json:"permissions"`
	Owner         string  `json:"owner"`
	Group         string  `json:"group"`
	ModifiedTime  float64 `json:"modified_time"`
	SymlinkTarget *string `json:"symlink_target"`
}

// helperError is what the helper prints on stderr before it exits with 1.
type helperError struct {
	Kind    string `json:"error_kind"`
	Message string `json:"message"`
	Detail  string `json:"detail"`
}

func (e *helperError) Error() string { return e.Message }

func (p *process) startHelper(g *guest, c command) {
	p.stdout = newOutput(unreadFile)
	input, upload := io.Pipe()
	p.stdin = &stdin{
		to:     upload,
		finish: upload.Close,
		abort:  func() { _ = input.CloseWithError(errUploadAborted) },
	}
	p.kill = func() { _ = upload.CloseWithError(errUploadAborted) }
	go func() {
		err := g.run(func() error {
			return runHelper(c.argv[1:], input, p.stdout)
		})
		p.code = reportHelper(err, p.stderr)
		p.stdin.end()
		p.stdout.close()
		p.stderr.close()
		close(p.done)
	}()
}

func reportHelper(err error, stderr io.Writer) int {
	var failure *helperError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure):
		_ = json.NewEncoder(stderr).Encode(failure)
		return 1
	default:
		_, _ = fmt.Fprintln(stderr, err)
		return 2
	}
}

func runHelper(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: modal-sandbox-fs-tools REQUEST")
	}
	var request helperRequest
	if err := json.Unmarshal([]byte(args[0]), &request); err != nil {
		return fmt.Errorf("parse the request: %w", err)
	}
	switch {
	case request.WriteFile != nil:
		return translate(writeFile(request.WriteFile.Path, stdin))
	case request.ReadFile != nil:
		return translate(readFile(request.ReadFile.Path, stdout))
	case request.ListFiles != nil:
		return translate(listFiles(request.ListFiles.Path, stdout))
	case request.Stat != nil:
		return translate(statFile(request.Stat.Path, stdout))
	case request.MakeDirectory != nil:
		return translate(makeDirectory(request.MakeDirectory.Path, request.MakeDirectory.Parents))
	case request.Remove != nil:
		return translate(remove(request.Remove.Path, request.Remove.Recursive))
	default:
		return errors.New("unknown request")
	}
}

// translate turns a system error into the helper's own kinds.
func translate(err error) error {
	var already *helperError
	if err == nil || errors.As(err, &already) || errors.Is(err, errUploadAborted) {
		return err
	}
	kinds := []struct {
		errno         syscall.Errno
		kind, message string
	}{
		{syscall.ENOENT, "NotFound", "No such file or directory"},
		{syscall.EISDIR, "IsDirectory", "Is a directory"},
		{syscall.ENOTDIR, "NotDirectory", "Not a directory"},
		{syscall.EEXIST, "PathAlreadyExists", "Path already exists"},
		{syscall.EACCES, "PermissionDenied", "Permission denied"},
		{syscall.EPERM, "PermissionDenied", "Operation not permitted"},
		{syscall.EROFS, "PermissionDenied", "Read-only file system"},
		{syscall.ENOTEMPTY, "DirectoryNotEmpty", "Directory not empty"},
	}
	for _, k := range kinds {
		if errors.Is(err, k.errno) {
			return &helperError{Kind: k.kind, Message: k.message, Detail: err.Error()}
		}
	}
	return &helperError{Kind: "Other", Message: "Operation failed", Detail: err.Error()}
}

// writeFile replaces whatever is at path, links included, by a file of mode
// 0644, and leaves it alone when the upload breaks off.
func writeFile(path string, content io.Reader) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return syscall.EISDIR
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".upload-")
	if err != nil {
		return err
	}
	_, err = io.Copy(temp, content)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

func readFile(path string, to io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	if info.Size() > maxFileRead {
		return &helperError{Kind: "FileTooLarge", Message: "File is too large to read"}
	}
	_, err = io.Copy(to, file)
	return err
}

func listFiles(path string, to io.Writer) error {
	if info, err := os.Stat(path); err != nil {
		return err
	} else if !info.IsDir() {
		return syscall.ENOTDIR
	}
	found, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	entries := make([]fileEntry, 0, len(found))
	for _, f := range found {
		entry, err := describe(filepath.Join(path, f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed while the directory was read
		}
		if err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	return json.NewEncoder(to).Encode(entries)
}

func statFile(path string, to io.Writer) error {
	entry, err := describe(path)
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(entry)
}

func describe(path string) (fileEntry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return fileEntry{}, err
	}
	raw := info.Sys().(*syscall.Stat_t)
	entry := fileEntry{
		Name:         filepath.Base(path),
		Path:         path,
		Type:         "file",
		Size:         info.Size(),
		Mode:         raw.Mode,
		Permissions:  fmt.Sprintf("%04o", raw.Mode&0o7777),
		Owner:        ownerName(raw.Uid),
		Group:        groupName(raw.Gid),
		ModifiedTime: float64(info.ModTime().UnixNano()) / 1e9,
	}
	switch {
	case info.IsDir():
		entry.Type = "directory"
	case info.Mode()&os.ModeSymlink != 0:
		entry.Type = "symlink"
		target, err := os.Readlink(path)
		if err != nil {
			return fileEntry{}, err
		}
		entry.SymlinkTarget = &target
	}
	return entry, nil
}

func ownerName(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	if found, err := user.LookupId(text); err == nil {
		return found.Username
	}
	return text
}

func groupName(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	if found, err := user.LookupGroupId(text); err == nil {
		return found.Name
	}
	return text
}

func makeDirectory(path string, parents bool) error {
	if parents {
		return os.MkdirAll(path, 0o755)
	}
	return os.Mkdir(path, 0o755)
}

func remove(path string, recursive bool) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	if recursive {
		return os.RemoveAll(path)
	}
	return os.Remove(path)
}
