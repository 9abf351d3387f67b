package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind is the class of an error: what the caller can do about it.
type Kind string

// The kinds of error.
const (
	// KindInvalid is a request that makes no sense to this backend.
	KindInvalid Kind = "invalid"
	// KindRefused is a request that cannot be enforced or is not supported.
	KindRefused Kind = "refused"
	// KindNotFound means that the sandbox is gone. It is never about a file.
	KindNotFound Kind = "not_found"
	// KindPath is about a path in a live sandbox; the caller can take another one.
	KindPath     Kind = "path"
	KindTooLarge Kind = "too_large"
	KindConflict Kind = "conflict"
	// KindAuth means that credentials are missing or were rejected.
	KindAuth Kind = "auth"
	// KindUnavailable means that the backend cannot be reached or does not answer.
	KindUnavailable Kind = "unavailable"
	KindRateLimited Kind = "rate_limited"
	// KindIndeterminate means that the request may or may not have been carried
	// out. It is never repeated automatically.
	KindIndeterminate Kind = "indeterminate"
	KindCanceled      Kind = "canceled"
	KindInternal      Kind = "internal"
)

// PathReason is what is wrong with a path.
type PathReason string

// The reasons of KindPath.
const (
	PathMissing      PathReason = "missing"
	PathIsDirectory  PathReason = "is_directory"
	PathNotDirectory PathReason = "not_directory"
	PathNotRegular   PathReason = "not_regular"
	PathPermission   PathReason = "permission"
	PathReadOnly     PathReason = "read_only"
	PathNoSpace      PathReason = "no_space"
	PathInvalid      PathReason = "invalid"
	PathOther        PathReason = "other"
)

// Error is an error with a class. It crosses the wire whole, but for Cause.
type Error struct {
	Kind Kind
	// Message is one sentence: what failed, on what, why.
	Message string
	// Hint says what to do; may be empty.
	Hint string
	// Option is the refused option, for KindRefused: "--memory".
	Option string
	// Path and PathReason are set for KindPath and, the former, for KindTooLarge.
	Path       string
	PathReason PathReason
	// Size and Limit, in bytes, are set for KindTooLarge. Size is at least what was
	// seen.
	Size, Limit int64
	// RetryAfter is set for KindRateLimited where the backend said it.
	RetryAfter time.Duration
	// LeftBehind says that something may still exist at the backend.
	LeftBehind bool
	// Cause is for logs on the driver's side.
	Cause error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Cause }

// WithHint returns the error with what to do about it.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// KindOf returns an error's kind: of an *Error in its chain, else from a context's
// end, else KindInternal. It returns "" for nil.
func KindOf(err error) Kind {
	var typed *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &typed):
		return typed.Kind
	case errors.Is(err, context.Canceled):
		return KindCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return KindUnavailable
	}
	return KindInternal
}

// Errorf returns an error of a kind. As in fmt.Errorf, an error among the arguments
// that is wrapped with %w becomes the cause.
func Errorf(kind Kind, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: wrapped.Error(), Cause: errors.Unwrap(wrapped)}
}

// Refusedf says that an option cannot be enforced by this backend.
func Refusedf(option, format string, args ...any) *Error {
	err := Errorf(KindRefused, format, args...)
	err.Option = option
	return err
}

// NotFoundf says that a sandbox does not exist (any more).
func NotFoundf(format string, args ...any) *Error {
	return Errorf(KindNotFound, format, args...)
}

// PathErrorf says what is wrong with a path in a sandbox that exists. Use it only
// after the sandbox was seen to exist: backends answer 404 for both.
func PathErrorf(path string, reason PathReason, format string, args ...any) *Error {
	err := Errorf(KindPath, format, args...)
	err.Path, err.PathReason = path, reason
	return err
}

// TooLarge says that a file is larger than the limit that was given, in bytes.
func TooLarge(path string, size, limit int64) *Error {
	return &Error{
		Kind:    KindTooLarge,
		Message: fmt.Sprintf("%s has at least %d bytes, more than the limit of %d", printable(path), size, limit),
		Path:    path, Size: size, Limit: limit,
	}
}

// printable quotes a path only where it holds what a terminal should not see.
func printable(path string) string {
	quoted := fmt.Sprintf("%q", path)
	if strings.Trim(quoted, `"`) == path && path != "" {
		return path
	}
	return quoted
}
