package cli

import (
	"github.com/spf13/cobra"
)

func (a *App) newDriverCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "driver",
		Short: "Look at drivers",
		Args:  noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return command.Help()
		},
	}
	command.AddCommand(a.newDriverLsCommand(), a.newDriverInfoCommand(), a.newDriverTestCommand())
	return command
}
