package plugin

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// Driver is what every driver implements. Methods may be called concurrently;
// each ends soon after its context does.
type Driver interface {
	// Info says who the driver is and what it can enforce. It uses no network
	// and no credentials, and is called before anything else.
	Info() Info

	// Create makes one sandbox and returns when it can be used. It calls
	// events.Created as soon as anything exists at the backend. When it fails
	// after that, the SDK calls Destroy; what exists without a handle is the
	// driver's own to remove. A repeated spec.RequestID returns the same sandbox.
	Create(ctx context.Context, spec *SandboxSpec, events CreateEvents) (*Sandbox, error)

	// List returns every live sandbox that carries sandboxctl's labels, whoever
	// owns it. A row that cannot be read is a warning, not an error.
	List(ctx context.Context, request ListRequest) (*SandboxList, error)

	// Destroy removes a sandbox whatever its state. One that is gone already is
	// reported by alreadyGone and is no error.
	Destroy(ctx context.Context, ref Ref) (alreadyGone bool, err error)

	// Exec runs one command to its end. A non-zero exit, a kill and a timeout
	// are results; an error means that sandboxctl or the backend failed. When
	// the context ends, Exec kills the command and all that it started and
	// returns the context's error.
	Exec(ctx context.Context, ref Ref, request *ExecRequest, stdio *ExecIO) (ExitStatus, error)
}

// Configurer is implemented by drivers that have settings, credentials or state.
// Configure is called once, before everything but Info.
type Configurer interface {
	Configure(ctx context.Context, config Config) (warnings []string, err error)
}

// HealthChecker is implemented by drivers that can say more about their backend
// than that they run. It is what `sandboxctl doctor` shows.
type HealthChecker interface {
	CheckHealth(ctx context.Context) []Check
}

// Inspector is implemented by drivers that can look at one sandbox without
// listing all of them. Without it the SDK looks through List.
type Inspector interface {
	// Inspect returns the sandbox, or an error of kind KindNotFound.
	Inspect(ctx context.Context, ref Ref) (*Sandbox, error)
}

// Renewer is implemented by drivers whose backend can move the time at which a
// sandbox expires.
type Renewer interface {
	// Renew sets the expiry, zero for none, and returns it as the backend keeps it.
	Renew(ctx context.Context, ref Ref, expires time.Time) (time.Time, error)
}

// FileSystem is implemented by drivers that can read and write single files.
// Paths are bytes in a string; a relative one starts at the sandbox's workdir.
// What is wrong with a path is an error of kind KindPath, see [PathErrorf], and
// KindNotFound is only for a sandbox that is gone.
type FileSystem interface {
	// Stat describes a path; with follow, what a symbolic link points to.
	Stat(ctx context.Context, ref Ref, path string, follow bool) (FileInfo, error)
	// ReadDir returns the entries of a directory, hidden ones included, in any order.
	ReadDir(ctx context.Context, ref Ref, path string) ([]FileInfo, error)
	// ReadFile writes a regular file's content to w. Beyond maxBytes, unless it
	// is zero, it stops with an error of kind KindTooLarge.
	ReadFile(ctx context.Context, ref Ref, path string, maxBytes int64, w io.Writer) error
	// WriteFile replaces a regular file's content with what r gives, makes missing
	// parents, and gives a new file the permission bits of mode. When r fails,
	// no half-written file keeps the name.
	WriteFile(ctx context.Context, ref Ref, path string, mode uint32, r io.Reader) error
}

// Archiver is implemented by drivers that can move whole trees as tar streams.
type Archiver interface {
	// GetArchive writes a tar stream of the entry at path to w. Names start with
	// the path's base name; with follow, links are replaced by what they point to.
	GetArchive(ctx context.Context, ref Ref, path string, follow bool, w io.Writer) error
	// PutArchive extracts a tar stream into a directory, made where missing.
	PutArchive(ctx context.Context, ref Ref, dir string, r io.Reader) error
}

// AccessLogger is implemented by drivers that know what a sandbox's network let
// through and what it refused.
type AccessLogger interface {
	// AccessLog returns what is remembered, oldest first. It is bounded: old entries
	// may be missing.
	AccessLog(ctx context.Context, ref Ref) ([]Access, error)
}

// ImageStore is implemented by drivers that keep images themselves, where users have
// to be able to see and remove them. A driver whose backend does so is none.
type ImageStore interface {
	ListImages(ctx context.Context) ([]Image, error)
	// PullImage fetches an image, or a newer one of the same name.
	PullImage(ctx context.Context, reference string, progress func(Progress)) (*Image, error)
	// RemoveImage removes the image that a reference, a digest or a unique beginning
	// of one names, and returns how many bytes that gave back. Sandboxes that were
	// made from it live on. KindNotFound says that there is no such image.
	RemoveImage(ctx context.Context, reference string) (freedBytes uint64, err error)
}

// CreateEvents is how Create reports on its way.
type CreateEvents interface {
	// Created hands over the backend's reference of what now exists. It may be
	// called again when more becomes known.
	Created(handle []byte)
	// Progress is shown to people at a terminal.
	Progress(progress Progress)
	// Warn tells the user something that does not stop the create.
	Warn(message string)
}

// Progress is a step of a create. A zero Total means that it is unknown.
type Progress struct {
	Message        string
	Current, Total uint64
}

// Config is what a driver is given before its first call.
type Config struct {
	HostVersion string
	// Settings is the driver's section of the user's configuration as a JSON object.
	Settings []byte
	// Environment holds the variables that Info declared, where the user has
	// them. They may be secrets: never log them.
	Environment map[string]string
	// StateDir is a directory of the driver's own, mode 0700.
	StateDir string
	// Owner is the random id of this user's state.
	Owner string
	// Logger reaches the user with --debug. Anything printed does, too, but without
	// a level. It is never given secrets.
	Logger *slog.Logger
}

// Check is one line of a health report.
type Check struct {
	Name   string
	Status CheckStatus
	Detail string
	// Fix says what to do when Status is not CheckOK.
	Fix string
}

// CheckStatus is the outcome of a Check.
type CheckStatus string

// The outcomes of a Check.
const (
	CheckOK      CheckStatus = "ok"
	CheckWarning CheckStatus = "warning"
	CheckFailed  CheckStatus = "failed"
)
