package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/transfer"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// The reasons for a command's end that are not plugin.ExitReason.
const (
	reasonLost        = "lost"
	reasonSandboxGone = "sandbox_gone"
	reasonDriverError = "driver_error"
)

// execResult is exec's and run's JSON.
type execResult struct {
	output.Header
	// Sandbox is its name.
	Sandbox string `json:"sandbox,omitempty"`
	ID      string `json:"id,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// ExitCode is absent when the command has none: it timed out, or never ended.
	ExitCode *int `json:"exit_code,omitempty"`
	// Reason is exited, signaled, timed_out, oom, canceled, lost, sandbox_gone or
	// driver_error.
	Reason string `json:"reason"`
	// Signal, without "SIG", is set when the command was killed by one.
	Signal string `json:"signal,omitempty"`
	// Stdout and Stderr hold the end of each stream; absent when it was not captured.
	Stdout *string `json:"stdout,omitempty"`
	Stderr *string `json:"stderr,omitempty"`
	// StdoutEncoding is utf-8, or base64 when the bytes are not.
	StdoutEncoding string `json:"stdout_encoding,omitempty"`
	StderrEncoding string `json:"stderr_encoding,omitempty"`
	// StdoutBytes is how much the command wrote in all.
	StdoutBytes     int64 `json:"stdout_bytes"`
	StderrBytes     int64 `json:"stderr_bytes"`
	StdoutTruncated bool  `json:"stdout_truncated"`
	StderrTruncated bool  `json:"stderr_truncated"`
	// AppliedTimeoutS is the deadline that was in force, in seconds.
	AppliedTimeoutS *float64 `json:"applied_timeout_s,omitempty"`
	DurationMS      int64    `json:"duration_ms"`
	// SandboxTerminated says that the sandbox did not outlive the command.
	SandboxTerminated bool `json:"sandbox_terminated"`
	// CleanupError is why run could not remove its sandbox.
	CleanupError *output.Error `json:"cleanup_error,omitempty"`

	options execOptions
}

func (a *App) newExecResult(options execOptions) *execResult {
	return &execResult{Reason: reasonDriverError, options: options}
}

// Text says what a bare exit code would leave open.
func (r *execResult) Text(p *output.Printer) {
	switch r.Reason {
	case string(plugin.ExitTimedOut):
		left := "the sandbox is still there"
		if r.SandboxTerminated {
			left = "the sandbox is gone"
		}
		after := ""
		if r.AppliedTimeoutS != nil {
			after = fmt.Sprintf(" after %gs", *r.AppliedTimeoutS)
		}
		p.Note("sandboxctl: the command was killed%s because its time was up; %s", after, left)
	case string(plugin.ExitOOM):
		p.Note("sandboxctl: the command was killed because the sandbox ran out of memory")
	}
}

// exitCode is the process's: the command's own, or 124.
func (r *execResult) exitCode() int {
	switch {
	case r.Reason == string(plugin.ExitTimedOut):
		return exitTimeout
	case r.ExitCode != nil:
		return *r.ExitCode
	}
	return exitTool
}

// failed fills in why there is no result.
func (r *execResult) failed(err error) *execResult {
	var lost *plugin.ConnectionError
	var crash *host.CrashError
	switch {
	case plugin.KindOf(err) == plugin.KindNotFound:
		r.Reason = reasonSandboxGone
		r.SandboxTerminated = true
	case plugin.KindOf(err) == plugin.KindIndeterminate, errors.As(err, &crash), errors.As(err, &lost):
		r.Reason = reasonLost
	}
	return r
}

// ended fills in how the command ended.
func (r *execResult) ended(status plugin.ExitStatus) {
	r.Reason, r.Signal, r.SandboxTerminated = string(status.Reason), status.Signal, status.SandboxTerminated
	if status.Reason != plugin.ExitTimedOut && status.Reason != plugin.ExitCanceled {
		code := status.Code
		r.ExitCode = &code
	}
	if status.AppliedTimeout > 0 {
		r.applied(status.AppliedTimeout)
	}
}

func (r *execResult) applied(timeout time.Duration) {
	seconds := timeout.Seconds()
	r.AppliedTimeoutS = &seconds
}

// captured fills in what was kept of the output.
func (r *execResult) captured(stdout, stderr *output.Tail) {
	out, outEncoding := output.Bytes(stdout.Bytes())
	err, errEncoding := output.Bytes(stderr.Bytes())
	r.Stdout, r.StdoutEncoding, r.StdoutTruncated = &out, outEncoding, stdout.Truncated()
	r.Stderr, r.StderrEncoding, r.StderrTruncated = &err, errEncoding, stderr.Truncated()
}

// resultFile is a result that is also written to a file when the user asked for one.
type resultFile interface {
	record(kind string, failure *output.Error) error
}

func (r *execResult) record(kind string, failure *output.Error) error {
	if r.options.resultFile == "" {
		return nil
	}
	line, err := output.Encode(kind, r, failure)
	if err != nil {
		return err
	}
	err = transfer.WriteFileAtomic(r.options.resultFile, 0o600, time.Time{}, func(w io.Writer) error {
		_, err := w.Write(line)
		return err
	})
	if err != nil {
		return &hintedError{err, "the command has run; name another --result-file"}
	}
	return nil
}

// commandContext bounds what the host waits for: the command's own deadline and
// hostGrace, in which the driver, which enforces the deadline in the guest, answers.
func commandContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout+hostGrace, errNoAnswer)
}
