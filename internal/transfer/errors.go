package transfer

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
)

// Class says what kind of failure an Error is, so that the command line can
// choose an exit code and a script can branch without reading the sentence.
type Class string

const (
	// ClassUsage is a command line that cannot be understood.
	ClassUsage Class = "usage"
	// ClassPath is a path that is missing, of the wrong kind, not permitted or
	// out of space. The wrapped error, if any, is the operating system's.
	ClassPath Class = "path"
	// ClassRefused is an archive entry that is never extracted: it leaves the
	// destination, is a device, repeats a name and the like.
	ClassRefused Class = "refused"
	// ClassLimit is an archive that is larger than Limits allow. Error.Limit
	// and Error.Max are set.
	ClassLimit Class = "limit"
	// ClassTruncated is a stream that ended before the archive did.
	ClassTruncated Class = "truncated"
	// ClassCorrupt is a stream that is not a tar archive, or holds nothing.
	ClassCorrupt Class = "corrupt"
	// ClassChanged is a local file that changed while it was read.
	ClassChanged Class = "changed"
)

// Error is every failure this package finds itself. Errors of the reader or the
// writer it was given (a driver's, for instance) are passed on as they are.
type Error struct {
	Class Class
	// Path is the local path, the command line argument or the name in the
	// archive that failed: raw bytes, possibly not UTF-8. Empty when the
	// stream as a whole failed.
	Path string
	// Reason completes the sentence that Path starts.
	Reason string
	// Limit and Max name the exceeded limit, for ClassLimit only.
	Limit LimitName
	Max   int64
	// Err is the cause, if there is one below this package.
	Err error
}

// Error quotes the path, so a name chosen by a sandbox cannot reach a terminal
// as control characters.
func (e *Error) Error() string {
	text := e.Reason
	if e.Path != "" {
		text = strconv.Quote(e.Path) + ": " + text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the cause, for errors.Is(err, syscall.ENOSPC) and the like.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf gives the class of the first Error in err's chain, or "" when the
// failure is not this package's.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ""
}

// localError reports what failed at a path of this machine. The operating
// system's error is stripped of its own path, which would only repeat it.
func localError(path, reason string, err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		err = pathErr.Err
	case errors.As(err, &linkErr):
		err = linkErr.Err
	}
	return &Error{Class: ClassPath, Path: path, Reason: reason, Err: err}
}
