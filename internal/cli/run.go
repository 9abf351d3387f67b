package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/spec"
)

type runCommandOptions struct {
	createOptions
	execOptions
	keep bool
}

func (a *App) newRunCommand() *cobra.Command {
	options := &runCommandOptions{}
	command := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run one command in a sandbox of its own and remove it",
		Long: `Run creates a sandbox, runs a command in it, removes the sandbox and exits with the
command's exit code. It takes the flags of create and exec; --env is set for the sandbox.`,
		Example: `  sandboxctl run -- python3 -c 'print(6 * 7)'
  sandboxctl run --json --timeout 30s --memory 512m -- sh -c 'echo hi; exit 3'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name the command to run, as in `run -- python3 script.py`")
			}
			return nil
		},
	}
	flags := command.Flags()
	options.createOptions.flags(flags)
	options.execOptions.flags(flags)
	options.envFlags(flags)
	flags.StringVarP(&options.workdir, "workdir", "w", "", "the directory to run in")
	flags.BoolVar(&options.keep, "keep", false, "leave the sandbox in place and print its name on stderr")
	stopAtCommand(command)
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runRun(ctx, options, withoutDashes(args))
	})
}

func (a *App) runRun(ctx context.Context, options *runCommandOptions, argv []string) (output.Result, error) {
	result := a.newExecResult(options.execOptions)
	request, err := options.command(a, argv)
	if err != nil {
		return result, err
	}
	wanted, err := options.spec(a)
	if err != nil {
		return result, err
	}
	made, err := a.provision(ctx, provisioning{driver: a.config.Driver, name: options.name, spec: wanted})
	if err != nil {
		return result, err
	}
	found := &target{record: made.record, driver: made.driver}
	defer found.driver.Close()
	result.Sandbox, result.ID, result.Driver = found.record.Name, found.record.ID, found.record.Driver
	if err = spec.RefuseExec(request, found.driver.Info); err == nil {
		err = a.execute(ctx, found, request, result)
	} else {
		err = fromDriver(found.record.Driver, err)
	}
	if options.keep {
		a.printer.Note("The sandbox %s stays; remove it with `sandboxctl rm %s`.", found.record.Name, found.record.Name)
		return result, err
	}
	return result, a.removeAfterRun(ctx, found, result, err)
}

// removeAfterRun removes run's sandbox, also after a signal. The command's own outcome
// stays the outcome; that the sandbox is left is told next to it.
func (a *App) removeAfterRun(ctx context.Context, found *target, result *execResult, outcome error) error {
	removal, cancel := removalContext(ctx)
	defer cancel()
	_, err := a.remove(removal, found)
	if err == nil {
		result.SandboxTerminated = true
		return outcome
	}
	told, _ := describeFailure(fromDriver(found.record.Driver, err))
	told.Sandbox = found.record.Name
	if told.Hint == "" {
		told.Hint = fmt.Sprintf("`sandboxctl rm %s` or `sandboxctl gc` removes it", found.record.Name)
	}
	result.CleanupError = told
	a.printer.Warn("the sandbox %s could not be removed: %s; %s", found.record.Name, told.Message, told.Hint)
	return outcome
}
