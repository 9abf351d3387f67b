package host

import (
	"fmt"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// StartReason is why a driver could not be started.
type StartReason string

// The reasons of a StartError.
const (
	// ReasonMissing: there is no such file.
	ReasonMissing StartReason = "missing"
	// ReasonUntrusted: others could have put or changed the file.
	ReasonUntrusted StartReason = "untrusted"
	// ReasonNotExecutable: the file is no regular file or may not be executed.
	ReasonNotExecutable StartReason = "not_executable"
	// ReasonWrongPlatform: the file is for another system or processor.
	ReasonWrongPlatform StartReason = "wrong_platform"
	// ReasonNoise: something else came on stdout in place of the handshake.
	ReasonNoise StartReason = "noise"
	// ReasonExited: the process ended before the handshake.
	ReasonExited StartReason = "exited"
	// ReasonPanic: the process panicked before the handshake.
	ReasonPanic StartReason = "panic"
	// ReasonSlow: no handshake, or no answer to the first question, in time.
	ReasonSlow StartReason = "slow"
	// ReasonProtocol: driver and host speak different versions.
	ReasonProtocol StartReason = "protocol"
	// ReasonNotADriver: the program is something else.
	ReasonNotADriver StartReason = "not_a_driver"
	// ReasonWrongName: the program is another driver than its file name says.
	ReasonWrongName StartReason = "wrong_name"
	// ReasonReattach: a driver that should be running already cannot be reached.
	ReasonReattach StartReason = "reattach"
	// ReasonConfiguration: what the configuration says about the driver cannot be.
	ReasonConfiguration StartReason = "configuration"
	// ReasonEnvironment: this machine lacks what a start needs, such as a directory
	// for the socket.
	ReasonEnvironment StartReason = "environment"
)

// StartError means that a driver is not running, and so did nothing.
type StartError struct {
	// Driver is the name, Path the file or address.
	Driver, Path string
	Reason       StartReason
	// Message is one sentence that names driver, path and cause.
	Message string
	// Hint says what to do.
	Hint string
	// LastLines are the last of what the driver wrote to stderr, fit for a terminal.
	LastLines []string
	Cause     error
}

func (e *StartError) Error() string { return e.Message }

func (e *StartError) Unwrap() error { return e.Cause }

// CrashError means that the driver's process ended during a call. Its cause is the
// call's *plugin.ConnectionError: the answer is lost, and what was asked may or may
// not have been done.
type CrashError struct {
	Driver string
	// During is the call: "exec".
	During string
	// ExitStatus is how the process ended: "exit status 2", "signal: killed".
	ExitStatus string
	// Panic is the first line of a panic, or empty.
	Panic string
	// LastLines are the last of what the driver wrote to stderr, a panic from its
	// first line on, fit for a terminal.
	LastLines []string
	Cause     error
}

func (e *CrashError) Error() string {
	what := e.ExitStatus
	if e.Panic != "" {
		what = e.Panic
	}
	return fmt.Sprintf("driver %s crashed in %s: %s", e.Driver, e.During, what)
}

func (e *CrashError) Unwrap() error { return e.Cause }

// UnknownDriverError means that no driver of a name was found anywhere.
type UnknownDriverError struct {
	Name string
	// Known are the drivers that there are.
	Known []string
	// Hint says where to put a driver.
	Hint string
}

func (e *UnknownDriverError) Error() string {
	known := "no drivers were found at all"
	if len(e.Known) > 0 {
		known = "found are " + strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("there is no driver %q; %s", e.Name, known)
}

// errInvalidName is about a name that no driver can have.
func errInvalidName(name string) error {
	return plugin.Errorf(plugin.KindInvalid,
		"%q is not a driver's name: a lower-case letter, then up to 31 lower-case letters, digits or dashes", name)
}
