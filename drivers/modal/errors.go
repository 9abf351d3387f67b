package modal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// classify gives an error of the SDK its class. The SDK maps some errors to
// types of its own and returns others as they came off the wire, so both are
// looked at. An error that has a class already is left alone.
func classify(err error, doing string, args ...any) error {
	if err == nil || errors.As(err, new(*plugin.Error)) {
		return err
	}
	what := fmt.Sprintf(doing, args...)
	kind := kindOf(err)
	if kind == plugin.KindCanceled {
		return fmt.Errorf("%s: %w", what, context.Canceled)
	}
	typed := plugin.Errorf(kind, "%s failed: %s", what, message(err))
	typed.Cause = err
	switch kind {
	case plugin.KindAuth:
		typed.Hint = "check the token with `modal token info`, or make a new one with `modal token new`"
	case plugin.KindRateLimited:
		typed.RetryAfter = retryAfter(err)
		typed.Hint = "wait, and make fewer sandboxes at once"
	case plugin.KindUnavailable:
		if isExhausted(err) {
			typed.Hint = "Modal has no capacity for this now; try again later or ask for less"
		}
	}
	return typed
}

// kindOf looks at Conflict before anything else: the SDK says that for a sandbox
// that has already finished.
func kindOf(err error) plugin.Kind {
	switch {
	case errors.As(err, new(modalsdk.ConflictError)), errors.As(err, new(modalsdk.NotFoundError)):
		return plugin.KindNotFound
	case errors.As(err, new(modalsdk.AlreadyExistsError)):
		return plugin.KindConflict
	case errors.As(err, new(modalsdk.InvalidError)), errors.As(err, new(modalsdk.RemoteError)):
		return plugin.KindInvalid
	case errors.As(err, new(modalsdk.ResourceExhaustedError)), errors.As(err, new(modalsdk.TimeoutError)),
		errors.As(err, new(modalsdk.SandboxTimeoutError)), errors.As(err, new(modalsdk.ExecTimeoutError)),
		errors.As(err, new(modalsdk.ClientClosedError)), errors.Is(err, context.DeadlineExceeded):
		return plugin.KindUnavailable
	case errors.Is(err, context.Canceled):
		return plugin.KindCanceled
	}
	return kindOfCode(err)
}

func kindOfCode(err error) plugin.Kind {
	switch code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return plugin.KindAuth
	case codes.NotFound:
		return plugin.KindNotFound
	case codes.InvalidArgument, codes.OutOfRange:
		return plugin.KindInvalid
	case codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted:
		return plugin.KindConflict
	case codes.ResourceExhausted:
		if isThrottled(err) {
			return plugin.KindRateLimited
		}
		return plugin.KindUnavailable
	case codes.Unavailable, codes.DeadlineExceeded:
		return plugin.KindUnavailable
	case codes.Canceled:
		return plugin.KindCanceled
	default:
		return plugin.KindInternal
	}
}

// code is the error's gRPC status, or OK for an error that has none.
func code(err error) codes.Code {
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return codes.OK
}

func message(err error) string {
	if st, ok := status.FromError(err); ok {
		return st.Message()
	}
	return err.Error()
}

// isExhausted says whether Modal has no capacity or wants fewer calls. On its
// newer backend that is a plain status, on the other one a type of the SDK.
func isExhausted(err error) bool {
	return errors.As(err, new(modalsdk.ResourceExhaustedError)) || code(err) == codes.ResourceExhausted
}

// isThrottled tells a rate limit from missing capacity: both are the same
// status.
func isThrottled(err error) bool {
	return retryAfter(err) > 0 || strings.Contains(strings.ToLower(message(err)), "rate limit")
}

func retryAfter(err error) time.Duration {
	st, ok := status.FromError(err)
	if !ok {
		return 0
	}
	for _, detail := range st.Details() {
		if policy, ok := detail.(*pb.RPCRetryPolicy); ok {
			return time.Duration(float64(policy.GetRetryAfterSecs()) * float64(time.Second))
		}
	}
	return 0
}

// isGone says whether an error about a sandbox that once existed means that it
// is no more. The SDK says so in three shapes.
func isGone(err error) bool {
	return kindOf(err) == plugin.KindNotFound
}

// mayHaveHappened says whether a call that failed like this can have been
// carried out nevertheless.
func mayHaveHappened(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unknown, codes.Internal:
		return true
	default:
		return false
	}
}
