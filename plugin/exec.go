package plugin

import (
	"io"
	"time"
)

// ExecRequest is one command.
type ExecRequest struct {
	// Argv is run as it is, without a shell. Arguments, and values of Env, need not be
	// UTF-8; a backend that cannot carry such bytes refuses them with KindInvalid.
	Argv []string
	// Env is added to the sandbox's own environment.
	Env map[string]string
	// Workdir is the sandbox's own when empty.
	Workdir string
	// User is a name or uid with an optional ":group"; the sandbox's own when empty.
	User string
	// Stdin says that the command reads input; without it, its stdin is empty.
	Stdin bool
	// TTY gives the command a terminal; its output is then all on stdout.
	TTY bool
	// Size is the terminal's first size.
	Size TerminalSize
	// Timeout, unless zero, is how long the command may run before it and all
	// that it started are killed. The clock starts with the command.
	Timeout time.Duration
}

// TerminalSize is a terminal's size in characters.
type TerminalSize struct {
	Rows, Cols uint32
}

// ExecIO joins a running command to its caller.
type ExecIO struct {
	// Stdin ends at once when the command was started without stdin. On the
	// host's side it may be nil.
	Stdin io.Reader
	// Stdout and Stderr take the command's bytes as they come.
	Stdout, Stderr io.Writer
	// Resize and Signals are closed when no more come; nil means none.
	Resize <-chan TerminalSize
	// Signals carries POSIX names without "SIG".
	Signals <-chan string
	// Started is called when the command runs, with the deadline that is in force
	// (zero when it is the requested one). A driver that cannot tell need not call it;
	// to a driver it is never nil.
	Started func(appliedTimeout time.Duration)
}

// ExitReason is why a command ended.
type ExitReason string

// The reasons for a command's end.
const (
	ExitExited   ExitReason = "exited"
	ExitSignaled ExitReason = "signaled"
	// ExitTimedOut needs elapsed time to have reached the deadline: a command may
	// exit 124 or 137 by itself.
	ExitTimedOut ExitReason = "timed_out"
	ExitOOM      ExitReason = "oom"
	ExitCanceled ExitReason = "canceled"
)

// ExitStatus is how a command ended.
type ExitStatus struct {
	// Code is what a shell would report: 128+n for signal n, 127 for a command that
	// was not found, 126 for one that cannot be executed.
	Code   int
	Reason ExitReason
	// Signal, without "SIG", is set for ExitSignaled.
	Signal string
	// SandboxTerminated says that the sandbox did not outlive the command.
	SandboxTerminated bool
	// AppliedTimeout is the deadline that was in force, zero when it is the requested one.
	AppliedTimeout time.Duration
}

// Exited is the status of a command that ended with a code by itself.
func Exited(code int) ExitStatus {
	return ExitStatus{Code: code, Reason: ExitExited}
}
