package guest

import "time"

// Path is where the helper is mounted in a sandbox.
const Path = "/.sandboxctl/guest"

// Name is the helper's program name. A program that also serves as the helper looks
// for it in os.Args[0].
const Name = "sandboxctl-guest"

// The helper's modes, its first argument.
const (
	// ModeInit is the sandbox's first process: it does nothing but reap. With a directory
	// and a user as arguments it makes the directory first and says so on InitFD.
	ModeInit = "init"
	// ModeCall answers one request. The argument that follows is Version.
	ModeCall = "call"
	// ModeLimit limits how many processes and threads there may be in the sandbox. The
	// arguments that follow are a control group and the limit.
	ModeLimit = "limit"
)

// Version is that of the requests and replies. A sandbox keeps the helper that it was
// made with, which refuses to work with a driver of another version.
const Version = "1"

// The file descriptors of the two ends of the conversation, in the helper.
const (
	ControlFD = 3
	ReplyFD   = 4
)

// Request is the first value on the control pipe. One field is set.
type Request struct {
	Exec *Exec `json:"exec,omitempty"`
	File *File `json:"file,omitempty"`
}

// Exec asks for a command.
type Exec struct {
	// Argv is run as it is.
	Argv [][]byte `json:"argv"`
	// Env holds NAME=value. HOME and USER are added from the guest's passwd where
	// they are missing.
	Env     [][]byte `json:"env"`
	Workdir []byte   `json:"workdir"`
	// User is a name or number with an optional ":group"; root when empty.
	User string `json:"user,omitempty"`
	TTY  bool   `json:"tty,omitempty"`
	Rows uint16 `json:"rows,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
	// Processes, unless zero, is how many processes and threads the command's user may
	// have.
	Processes uint64 `json:"processes,omitempty"`
}

// FileOp is what to do with a file.
type FileOp string

// The operations on files.
const (
	OpStat FileOp = "stat"
	// OpList writes one JSON Info per entry to stdout.
	OpList FileOp = "list"
	// OpRead writes the content to stdout, OpWrite takes it from stdin.
	OpRead  FileOp = "read"
	OpWrite FileOp = "write"
	// OpGet writes a tar stream to stdout, OpPut takes one from stdin.
	OpGet FileOp = "get"
	OpPut FileOp = "put"
)

// File asks for one operation on a path.
type File struct {
	Op   FileOp `json:"op"`
	Path []byte `json:"path"`
	// Workdir is where a relative path starts.
	Workdir []byte `json:"workdir"`
	// Follow is for OpStat and OpGet.
	Follow bool `json:"follow,omitempty"`
	// MaxBytes, unless zero, limits OpRead.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Mode is the permission of a new file, for OpWrite.
	Mode uint32 `json:"mode,omitempty"`
}

// Control is every later value on the control pipe. One field is set.
type Control struct {
	// Signal, a number, goes to the command's process group.
	Signal int   `json:"signal,omitempty"`
	Resize *Size `json:"resize,omitempty"`
	// Commit says that what came on stdin is whole. Without it, OpWrite leaves the
	// file as it was.
	Commit bool `json:"commit,omitempty"`
}

// Size is a terminal's size in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Reply is what the helper says. Started may be followed by another reply; Exit,
// Done and Error are the last.
type Reply struct {
	Started bool   `json:"started,omitempty"`
	Exit    *Exit  `json:"exit,omitempty"`
	Done    bool   `json:"done,omitempty"`
	Info    *Info  `json:"info,omitempty"`
	Error   *Error `json:"error,omitempty"`
}

// Exit is how a command ended.
type Exit struct {
	Code int `json:"code"`
	// Signal is the number of the signal that ended the command, or zero.
	Signal int `json:"signal,omitempty"`
	// Killed says that the command was running when the driver gave up on it.
	Killed bool `json:"killed,omitempty"`
}

// Info describes a file.
type Info struct {
	Name []byte `json:"name"`
	Kind Kind   `json:"kind"`
	Size int64  `json:"size"`
	// Mode holds the twelve bits that chmod sets.
	Mode    uint32    `json:"mode"`
	ModTime time.Time `json:"mtime"`
	Target  []byte    `json:"target,omitempty"`
}

// Kind is what a path names.
type Kind string

// The kinds of file.
const (
	KindFile      Kind = "file"
	KindDirectory Kind = "directory"
	KindSymlink   Kind = "symlink"
	KindOther     Kind = "other"
)

// Error is why a call failed, in the words of the driver's SDK.
type Error struct {
	Reason  Reason `json:"reason"`
	Path    []byte `json:"path,omitempty"`
	Message string `json:"message"`
	// Size is set for ReasonTooLarge, in bytes.
	Size int64 `json:"size,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Reason is the class of an Error.
type Reason string

// The reasons of an Error. Those of paths have the names of plugin.PathReason.
const (
	ReasonMissing      Reason = "missing"
	ReasonIsDirectory  Reason = "is_directory"
	ReasonNotDirectory Reason = "not_directory"
	ReasonNotRegular   Reason = "not_regular"
	ReasonPermission   Reason = "permission"
	ReasonReadOnly     Reason = "read_only"
	ReasonNoSpace      Reason = "no_space"
	ReasonInvalid      Reason = "invalid"
	ReasonOther        Reason = "other"
	ReasonTooLarge     Reason = "too_large"
	// ReasonUser is a user or group that the guest does not have.
	ReasonUser Reason = "user"
	// ReasonRequest is a request that the helper does not understand.
	ReasonRequest Reason = "request"
	// ReasonArchive is a tar stream that is broken or holds what is refused.
	ReasonArchive Reason = "archive"
)
