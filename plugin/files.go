package plugin

import "time"

// FileKind is what a path names.
type FileKind string

// The kinds of file.
const (
	FileRegular   FileKind = "file"
	FileDirectory FileKind = "directory"
	FileSymlink   FileKind = "symlink"
	// FileOther is a device, FIFO or socket.
	FileOther FileKind = "other"
)

// FileInfo describes a file in a sandbox.
type FileInfo struct {
	// Name is the base name, any bytes but NUL and slash.
	Name string
	Kind FileKind
	// Size is in bytes.
	Size int64
	// Mode holds permission, set-id and sticky bits as POSIX numbers them.
	Mode       uint32
	ModTime    time.Time
	LinkTarget string
}
