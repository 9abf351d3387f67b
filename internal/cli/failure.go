package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/internal/transfer"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// The classes of failure that are not a driver's, see plugin.Kind for those.
const (
	classUsage       = "usage"
	classFailed      = "failed"
	classPartial     = "partial"
	classInterrupted = "interrupted"
	classSetup       = "setup"
	classDriver      = "driver_error"
	classLost        = "lost"
	classTimeout     = "timeout"
)

// Exit codes of all commands but exec and run; see design section 6.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitSetup    = 4
	exitRefused  = 5
	exitConflict = 6
	exitPartial  = 7
	// exitTool is exec's and run's code for a failure that is not the command's own.
	exitTool = 125
	// exitTimeout is exec's and run's code for a command that timed out.
	exitTimeout = 124
	// exitPipe is what a shell shows for a program that lost its reader.
	exitPipe = 141
)

// usageError is a command line that makes no sense.
type usageError struct{ cause error }

func (e *usageError) Error() string { return e.cause.Error() }

func (e *usageError) Unwrap() error { return e.cause }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// interruptError is the cause of a context that a signal ended.
type interruptError struct{ signal syscall.Signal }

func (e *interruptError) Error() string {
	return "interrupted by signal " + signalName(e.signal)
}

// partialError says that some of several things failed; each was told by itself.
type partialError struct {
	what string
	// failed of total went wrong.
	failed, total int
}

func (e *partialError) Error() string {
	return fmt.Sprintf("%s: %d of %d failed", e.what, e.failed, e.total)
}

// driverError names the driver that a failure came from.
type driverError struct {
	driver string
	cause  error
}

func (e *driverError) Error() string { return e.cause.Error() }

func (e *driverError) Unwrap() error { return e.cause }

func fromDriver(name string, err error) error {
	if err == nil {
		return nil
	}
	return &driverError{driver: name, cause: err}
}

// hintedError adds what to do to an error that does not say it itself.
type hintedError struct {
	cause error
	hint  string
}

func (e *hintedError) Error() string { return e.cause.Error() }

func (e *hintedError) Unwrap() error { return e.cause }

// describeFailure is the one place where errors become classes, hints and exit codes.
func describeFailure(err error) (*output.Error, int) {
	failure, code := classify(err)
	if failure.Message == "" {
		failure.Message = err.Error()
	}
	var from *driverError
	if errors.As(err, &from) {
		failure.Driver = from.driver
	}
	var hinting interface{ Hint() string }
	if failure.Hint == "" && errors.As(err, &hinting) {
		failure.Hint = hinting.Hint()
	}
	var hinted *hintedError
	if errors.As(err, &hinted) {
		failure.Hint = hinted.hint
	}
	return failure, code
}

func classify(err error) (*output.Error, int) {
	var (
		usage       *usageError
		interrupted *interruptError
		partial     *partialError
		typed       *plugin.Error
		notFound    *ledger.NotFoundError
		ambiguous   *ledger.AmbiguousError
		taken       *ledger.NameTakenError
		state       *ledger.StateError
		stateDir    *ledger.StateDirError
		start       *host.StartError
		unknown     *host.UnknownDriverError
		crash       *host.CrashError
		lost        *plugin.ConnectionError
		copied      *transfer.Error
	)
	switch {
	case errors.As(err, &interrupted):
		return &output.Error{Class: classInterrupted}, 128 + int(interrupted.signal)
	case errors.As(err, &usage):
		return &output.Error{Class: classUsage}, exitUsage
	case errors.As(err, &partial):
		return &output.Error{Class: classPartial}, exitPartial
	case errors.As(err, &typed):
		return classifyDriver(typed)
	case errors.As(err, &ambiguous):
		return &output.Error{Class: classUsage}, exitUsage
	case errors.As(err, &notFound):
		return &output.Error{Class: string(plugin.KindNotFound)}, exitNotFound
	case errors.As(err, &taken), errors.As(err, &state):
		return &output.Error{Class: string(plugin.KindConflict)}, exitConflict
	case errors.As(err, &stateDir):
		return &output.Error{Class: classSetup}, exitSetup
	case errors.As(err, &unknown):
		return &output.Error{Class: classSetup, Hint: unknown.Hint, Driver: unknown.Name}, exitSetup
	case errors.As(err, &start):
		return &output.Error{Class: classSetup, Hint: start.Hint, Driver: start.Driver, Details: lastLines(start.LastLines)}, exitSetup
	case errors.As(err, &crash):
		return &output.Error{Class: classDriver, Driver: crash.Driver, Details: lastLines(crash.LastLines), Hint: "run it again with --debug to see the driver's log"}, exitFailed
	case errors.As(err, &lost):
		return &output.Error{Class: classLost}, exitFailed
	case errors.As(err, &copied):
		return classifyCopy(copied)
	case errors.Is(err, context.DeadlineExceeded):
		return &output.Error{Class: classTimeout, Retryable: true}, exitFailed
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return &output.Error{Class: string(plugin.KindPath)}, exitFailed
	}
	return &output.Error{Class: classFailed}, exitFailed
}

// lastLines keeps what a driver said last within a screen.
func lastLines(lines []string) []string {
	const most = 10
	return lines[max(0, len(lines)-most):]
}

func classifyDriver(err *plugin.Error) (*output.Error, int) {
	failure := &output.Error{Class: string(err.Kind), Hint: err.Hint}
	switch err.Kind {
	case plugin.KindNotFound:
		return failure, exitNotFound
	case plugin.KindAuth:
		return failure, exitSetup
	case plugin.KindRefused:
		return failure, exitRefused
	case plugin.KindConflict:
		return failure, exitConflict
	case plugin.KindUnavailable, plugin.KindRateLimited:
		failure.Retryable = true
	case plugin.KindInternal:
		failure.Class = classDriver
	}
	return failure, exitFailed
}

func classifyCopy(err *transfer.Error) (*output.Error, int) {
	if err.Class == transfer.ClassUsage {
		return &output.Error{Class: classUsage}, exitUsage
	}
	class := string(err.Class)
	if err.Class == transfer.ClassTruncated {
		class = classLost
	}
	return &output.Error{Class: class}, exitFailed
}
