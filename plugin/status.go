package plugin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain marks the ErrorInfo of this protocol.
const errorDomain = "sandboxctl.driver.v1"

// maxErrorText bounds messages and metadata: a status of many megabytes breaks the
// connection and looks like a crash (measured with grpc 1.85 and 20 MiB).
const maxErrorText = 4 << 10

var codeOfKind = map[Kind]codes.Code{
	KindInvalid:       codes.InvalidArgument,
	KindRefused:       codes.FailedPrecondition,
	KindNotFound:      codes.NotFound,
	KindPath:          codes.FailedPrecondition,
	KindTooLarge:      codes.OutOfRange,
	KindConflict:      codes.AlreadyExists,
	KindAuth:          codes.Unauthenticated,
	KindUnavailable:   codes.Unavailable,
	KindRateLimited:   codes.ResourceExhausted,
	KindIndeterminate: codes.Aborted,
	KindCanceled:      codes.Canceled,
	KindInternal:      codes.Internal,
}

// ConnectionError means that the connection to the driver broke or the driver
// broke the protocol: its answer, if there was one, is lost.
type ConnectionError struct {
	// Call is what was asked: "exec".
	Call  string
	Cause error
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("the driver's answer to %s was lost: %s", e.Call, e.Cause)
}

func (e *ConnectionError) Unwrap() error { return e.Cause }

// toStatus turns an error of a driver into what crosses the wire.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	var typed *Error
	if !errors.As(err, &typed) {
		typed = &Error{Kind: KindOf(err)}
	}
	known, ok := codeOfKind[typed.Kind]
	if !ok {
		known = codes.Internal
	}
	info := &errdetails.ErrorInfo{
		Reason:   strings.ToUpper(string(typed.Kind)),
		Domain:   errorDomain,
		Metadata: errorMetadata(typed),
	}
	answer, detailErr := status.New(known, cut(err.Error())).WithDetails(info)
	if detailErr != nil {
		return status.Error(known, cut(err.Error()))
	}
	return answer.Err()
}

func errorMetadata(err *Error) map[string]string {
	metadata := map[string]string{}
	set := func(key, value string) {
		if value != "" {
			metadata[key] = cut(value)
		}
	}
	number := func(key string, value int64) {
		if value != 0 {
			metadata[key] = strconv.FormatInt(value, 10)
		}
	}
	set("hint", err.Hint)
	set("option", err.Option)
	if err.Path != "" {
		metadata["path"] = strconv.QuoteToASCII(err.Path)
	}
	set("path_reason", string(err.PathReason))
	number("size", err.Size)
	number("limit", err.Limit)
	number("retry_after_ms", err.RetryAfter.Milliseconds())
	if err.LeftBehind {
		metadata["left_behind"] = "true"
	}
	return metadata
}

// fromStatus turns what crossed the wire into an *Error, a *ConnectionError, or
// the end of the caller's own context.
func fromStatus(ctx context.Context, call string, err error) error {
	if err == nil {
		return nil
	}
	answer, ok := status.FromError(err)
	if !ok {
		return &ConnectionError{Call: call, Cause: err}
	}
	for _, detail := range answer.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return errorFromInfo(answer.Message(), info)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", call, context.Cause(ctx))
	}
	switch answer.Code() {
	case codes.DeadlineExceeded:
		// The deadline travels with the call, and the other end may notice it first.
		return fmt.Errorf("%s: %w", call, context.DeadlineExceeded)
	case codes.Unimplemented:
		return Errorf(KindRefused, "the driver cannot %s", call)
	case codes.InvalidArgument, codes.ResourceExhausted, codes.Internal, codes.Unknown:
		return Errorf(KindInternal, "the driver failed to %s: %s", call, answer.Message())
	}
	return &ConnectionError{Call: call, Cause: errors.New(answer.Message())}
}

func errorFromInfo(message string, info *errdetails.ErrorInfo) *Error {
	metadata := info.GetMetadata()
	kind := Kind(strings.ToLower(info.GetReason()))
	if _, known := codeOfKind[kind]; !known {
		kind = KindInternal
	}
	path, err := strconv.Unquote(metadata["path"])
	if err != nil {
		path = metadata["path"]
	}
	return &Error{
		Kind:       kind,
		Message:    cut(message),
		Hint:       metadata["hint"],
		Option:     metadata["option"],
		Path:       path,
		PathReason: PathReason(metadata["path_reason"]),
		Size:       parseNumber(metadata["size"]),
		Limit:      parseNumber(metadata["limit"]),
		RetryAfter: time.Duration(parseNumber(metadata["retry_after_ms"])) * time.Millisecond,
		LeftBehind: metadata["left_behind"] == "true",
	}
}

func parseNumber(text string) int64 {
	number, _ := strconv.ParseInt(text, 10, 64)
	return number
}

// cut bounds a text and makes it valid UTF-8, which protobuf strings must be.
func cut(text string) string {
	const mark = "..."
	whole := len(text) <= maxErrorText
	if !whole {
		text = text[:maxErrorText]
	}
	// Each bad byte becomes three, so what was short enough may no longer be.
	text = strings.ToValidUTF8(text, "\uFFFD")
	if whole && len(text) <= maxErrorText {
		return text
	}
	end := min(len(text), maxErrorText-len(mark))
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
