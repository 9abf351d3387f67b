package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/spec"
)

// shellScript starts the best shell that there is. It is run by sh, which every image
// with a shell has.
const shellScript = `command -v bash >/dev/null 2>&1 && exec bash; exec sh`

func (a *App) newShellCommand() *cobra.Command {
	var user, workdir string
	command := &cobra.Command{
		Use:   "shell SANDBOX",
		Short: "Open a shell in a sandbox",
		Args:  oneSandbox,
	}
	command.Flags().StringVarP(&user, "user", "u", "", "run as this user")
	command.Flags().StringVarP(&workdir, "workdir", "w", "", "the directory to start in")
	command.Annotations = map[string]string{passesExitCode: "yes"}
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runShell(ctx, args[0], user, workdir)
	})
}

func (a *App) runShell(ctx context.Context, sandbox, user, workdir string) (output.Result, error) {
	options := execOptions{interactive: true, tty: true, user: user}
	result := a.newExecResult(options)
	request, err := options.command(a, []string{"sh", "-c", shellScript})
	if err != nil {
		return result, err
	}
	request.Workdir = workdir
	request.Env = map[string]string{"TERM": a.terminalType()}
	found, err := a.open(ctx, sandbox)
	if err != nil {
		return result.failed(err), err
	}
	defer found.driver.Close()
	result.Sandbox, result.ID, result.Driver = found.record.Name, found.record.ID, found.record.Driver
	if err := spec.RefuseExec(request, found.driver.Info); err != nil {
		return result.failed(err), fromDriver(found.record.Driver, err)
	}
	return result, a.execute(ctx, found, request, result)
}

// terminalType is the one thing that a guest has to know of the caller's environment.
func (a *App) terminalType() string {
	if kind := a.getenv("TERM"); kind != "" {
		return kind
	}
	return "xterm"
}
