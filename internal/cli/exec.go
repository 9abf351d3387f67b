package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/spec"
)

type execCommandOptions struct {
	execOptions
	env, envFiles []string
	workdir       string
}

func (a *App) newExecCommand() *cobra.Command {
	options := &execCommandOptions{}
	command := &cobra.Command{
		Use:   "exec [flags] SANDBOX [--] COMMAND [ARG...]",
		Short: "Run a command in a sandbox",
		Long: `Exec runs a command in a sandbox and exits with its exit code. The arguments reach it
as they are, without a shell; --shell takes a line for the sandbox's own. stdin is read
only with -i. See "sandboxctl help exit-codes" for 124 to 127 and beyond.`,
		Example: `  sandboxctl exec demo -- python3 -c 'print(1)'
  echo hello | sandboxctl exec -i demo -- cat
  sandboxctl exec --shell demo -- 'cd /workspace && ls | wc -l'
  sandboxctl exec --json --timeout 30s demo -- make test`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name the sandbox, then the command; `sandboxctl ls` lists your sandboxes")
			}
			return nil
		},
	}
	flags := command.Flags()
	options.flags(flags)
	flags.StringArrayVarP(&options.env, "env", "e", nil, "a variable for this command, `K=V`, or K to take it from here; may be repeated")
	flags.StringArrayVar(&options.envFiles, "env-file", nil, "a `FILE` of K=V lines; may be repeated")
	flags.StringVarP(&options.workdir, "workdir", "w", "", "the directory to run in (default: the sandbox's)")
	stopAtCommand(command)
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		if len(args) > 1 && strings.HasPrefix(args[1], "-") && args[1] != "--" {
			// No command is called so; it would only fail as one that does not exist.
			return a.newExecResult(options.execOptions), &usageError{fmt.Errorf(
				"%s stands behind the sandbox's name, where the command begins; write flags first: sandboxctl exec %s ... %s -- COMMAND", args[1], args[1], args[0])}
		}
		return a.runExec(ctx, options, args[0], withoutDashes(args[1:]))
	})
}

// withoutDashes drops the "--" that may stand between SANDBOX and COMMAND. A first one
// in front of SANDBOX was the flag parser's.
func withoutDashes(argv []string) []string {
	if len(argv) > 0 && argv[0] == "--" {
		return argv[1:]
	}
	return argv
}

func (a *App) runExec(ctx context.Context, options *execCommandOptions, sandbox string, argv []string) (output.Result, error) {
	result := a.newExecResult(options.execOptions)
	request, err := options.command(a, argv)
	if err != nil {
		return result, err
	}
	request.Workdir = options.workdir
	if err := spec.CheckText(map[string]string{"--workdir": options.workdir}); err != nil {
		return result, &usageError{err}
	}
	if request.Env, err = a.readEnv(options.env, options.envFiles); err != nil {
		return result, &usageError{err}
	}
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
