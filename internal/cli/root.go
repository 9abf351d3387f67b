package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
)

// Execute runs a command line, without the program's name, and returns the exit code.
func (a *App) Execute(ctx context.Context, arguments []string) int {
	if len(arguments) > 0 && arguments[0] == "--version" {
		// What installers, and people who have just installed something, try first.
		arguments = slices.Concat([]string{"version"}, arguments[1:])
	}
	a.arguments = arguments
	root := a.NewRootCommand()
	root.SetArgs(arguments)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.helpError
	}
	if err == nil {
		return 0
	}
	var status *exitStatus
	if !errors.As(err, &status) {
		// What cobra itself finds wrong is always about the command line.
		err = a.finish(command, nil, &hintedError{&usageError{err}, fmt.Sprintf("see `%s --help`", command.CommandPath())})
		if !errors.As(err, &status) {
			return exitUsage
		}
	}
	return status.code
}

// NewRootCommand returns the whole tree of commands.
func (a *App) NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sandboxctl",
		Short: "Run code you do not trust in a sandbox, on any backend",
		Long: `sandboxctl creates sandboxes, runs commands in them, copies files in and out and
removes them again, the same way on every backend. Backends are drivers; without one
named, Linux uses the built-in gVisor sandbox, which needs no daemon, no root and no
account.

  sandboxctl run -- python3 -c 'print(6 * 7)'
  sandboxctl create --name demo
  sandboxctl exec demo -- uname -a
  sandboxctl cp ./src demo:/workspace
  sandboxctl rm demo`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringP("output", "o", "", "write results as text or json")
	flags.Var(&jsonFlag{flags}, "json", "the same as --output json")
	flags.Lookup("json").NoOptDefVal = "true"
	flags.String(fieldFlag, "", "write one value of the JSON result as it is, by its dotted `NAME`: exit_code, labels.job")
	flags.String("color", "", "colour the output: auto, always or never")
	flags.String("profile", "", "use a profile of the configuration file")
	flags.Bool("debug", false, "show what sandboxctl and its driver do, on stderr")
	root.AddGroup(
		&cobra.Group{ID: groupSandboxes, Title: "Sandboxes:"},
		&cobra.Group{ID: groupCare, Title: "Looking after them:"},
		&cobra.Group{ID: groupSetup, Title: "Set-up:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		groupSandboxes: {a.newCreateCommand(), a.newExecCommand(), a.newRunCommand(), a.newShellCommand(), a.newCpCommand(), a.newLsCommand(), a.newRmCommand()},
		groupCare:      {a.newInspectCommand(), a.newRenewCommand(), a.newGCCommand(), a.newImageCommand()},
		groupSetup:     {a.newDriverCommand(), a.newDoctorCommand(), a.newVersionCommand(), a.newCompletionCommand()},
	} {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	root.AddCommand(helpTopics()...)
	a.installHelp(root)
	a.installCompletions(root)
	return root
}

const (
	groupSandboxes = "sandboxes"
	groupCare      = "care"
	groupSetup     = "setup"
)

// jsonFlag makes --json another way to write --output json, so that there is one
// setting and not two.
type jsonFlag struct{ flags *pflag.FlagSet }

func (f *jsonFlag) Set(value string) error {
	switch value {
	case "true":
		return f.flags.Set("output", string(output.JSON))
	case "false":
		return nil
	}
	return errors.New("it takes no value")
}

func (f *jsonFlag) String() string { return "" }

func (f *jsonFlag) Type() string { return "bool" }

func (f *jsonFlag) IsBoolFlag() bool { return true }

// noArgs, oneSandbox and their like say what is missing rather than count arguments.

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("it takes no arguments, but got %q", strings.Join(args, " "))
	}
	return nil
}

func oneSandbox(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name exactly one sandbox, not %d; `sandboxctl ls` lists them", len(args))
	}
	return nil
}
