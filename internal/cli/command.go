package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/config"
)

// action is a command's work: its result, which may be nil, and its failure. A command
// that fails half way returns both.
type action func(ctx context.Context, args []string) (output.Result, error)

// exitCoder is a result that decides on the exit code of a command that did not fail.
type exitCoder interface{ exitCode() int }

// exitStatus carries an exit code up to main once everything has been said.
type exitStatus struct{ code int }

func (e *exitStatus) Error() string { return "exit status" }

// runs makes a command do an action: it loads the configuration, and writes the result
// and the failure once, last.
func (a *App) runs(command *cobra.Command, do action) *cobra.Command {
	command.RunE = func(command *cobra.Command, args []string) error {
		loaded, err := config.Load(a.getenv, command.Flags())
		if err != nil {
			return a.finish(command, nil, usagef("%w", err))
		}
		a.config = loaded
		a.printer = a.newPrinter(output.Format(loaded.Output), loaded.Color)
		if err := a.selectField(command); err != nil {
			return a.finish(command, nil, err)
		}
		result, err := do(command.Context(), args)
		return a.finish(command, result, interruption(command.Context(), err))
	}
	return command
}

// interruption prefers the signal that ended a command's context to what came of it.
func interruption(ctx context.Context, err error) error {
	var signalled *interruptError
	if err != nil && errors.As(context.Cause(ctx), &signalled) && !errors.As(err, &signalled) {
		return errors.Join(signalled, err)
	}
	return err
}

func (a *App) newPrinter(format output.Format, color string) *output.Printer {
	return output.New(a.Stdout, a.Stderr, format, output.Environment{Getenv: a.getenv, Color: color})
}

// finish says how a command ended and returns its exit code as an error.
func (a *App) finish(command *cobra.Command, result output.Result, failure error) error {
	if a.printer == nil {
		a.printer = a.newPrinter(a.guessFormat(), "auto")
	}
	code := 0
	var told *output.Error
	if failure != nil {
		told, code = describeFailure(failure)
		if ownsExitCode(command) {
			code = toolCode(told, code)
		}
	}
	if coder, ok := result.(exitCoder); ok && failure == nil {
		code = coder.exitCode()
	}
	if recorder, ok := result.(resultFile); ok {
		if err := recorder.record(kindOf(command), told); err != nil && code == 0 {
			told, code = describeFailure(err)
		}
	}
	if errors.Is(failure, errReaderGone) {
		return &exitStatus{exitPipe}
	}
	err := a.printer.Finish(kindOf(command), result, told)
	if errors.Is(err, syscall.EPIPE) {
		return &exitStatus{exitPipe}
	}
	if err != nil && !errors.Is(err, io.ErrClosedPipe) && code == 0 {
		a.printer.Failure(&output.Error{Message: "writing the result: " + err.Error()})
		code = exitFailed
	}
	if code == 0 {
		return nil
	}
	return &exitStatus{code}
}

// ownsExitCode says that a command passes a guest's exit code on and therefore keeps
// its own failures in one code.
func ownsExitCode(command *cobra.Command) bool {
	return command.Annotations[passesExitCode] != ""
}

const passesExitCode = "passes-exit-code"

func toolCode(failure *output.Error, code int) int {
	if failure.Class == classInterrupted {
		return code
	}
	return exitTool
}

// kindOf names a command in JSON: "create", "driver ls", and "sandboxctl" where none was
// named.
func kindOf(command *cobra.Command) string {
	if !command.HasParent() {
		return command.Name()
	}
	path := strings.Fields(command.CommandPath())
	return strings.Join(path[1:], " ")
}

// guessFormat finds out how to tell a failure that came before the flags were parsed.
func (a *App) guessFormat() output.Format {
	if a.getenv("SANDBOXCTL_OUTPUT") == string(output.JSON) {
		return output.JSON
	}
	for i, argument := range a.arguments {
		switch argument {
		case "--":
			return output.Text
		case "--json", "--output=json", "-ojson", "-o=json":
			return output.JSON
		case "-o", "--output":
			if i+1 < len(a.arguments) && a.arguments[i+1] == "json" {
				return output.JSON
			}
		}
	}
	return output.Text
}
