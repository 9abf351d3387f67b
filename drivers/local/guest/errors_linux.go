package guest

import (
	"errors"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// pathError says what is wrong with a path, as one sentence without its subject's
// context.
func pathError(path string, err error) *Error {
	var typed *Error
	if errors.As(err, &typed) {
		return typed
	}
	failure := &Error{Reason: ReasonOther, Path: []byte(path), Message: strconv.Quote(path) + ": " + err.Error()}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return failure
	}
	failure.Message = strconv.Quote(path) + " cannot be used: " + errno.Error()
	switch errno {
	case unix.ENOENT:
		failure.Reason, failure.Message = ReasonMissing, strconv.Quote(path)+" does not exist in the sandbox"
	case unix.EISDIR:
		failure.Reason, failure.Message = ReasonIsDirectory, strconv.Quote(path)+" is a directory"
	case unix.ENOTDIR:
		failure.Reason, failure.Message = ReasonNotDirectory, strconv.Quote(path)+" is not a directory"
	case unix.EACCES, unix.EPERM:
		failure.Reason, failure.Message = ReasonPermission, strconv.Quote(path)+" may not be accessed in the sandbox"
	case unix.EROFS:
		failure.Reason, failure.Message = ReasonReadOnly, strconv.Quote(path)+" is on a read-only file system"
	case unix.ENOSPC, unix.EDQUOT:
		failure.Reason, failure.Message = ReasonNoSpace, "there is no space left for "+strconv.Quote(path)
	case unix.EINVAL, unix.ENAMETOOLONG, unix.ELOOP:
		failure.Reason = ReasonInvalid
	}
	return failure
}
