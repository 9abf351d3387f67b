package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/spec"
	"github.com/sandboxctl/sandboxctl/internal/transfer"
)

type cpOptions struct {
	follow, quiet bool
}

func (a *App) newCpCommand() *cobra.Command {
	options := &cpOptions{}
	command := &cobra.Command{
		Use:   "cp [flags] SRC DST",
		Short: "Copy files and directories into, out of and between sandboxes",
		Long: `Cp copies a file or a directory; one side or both is SANDBOX:PATH. What lands where
follows docker cp: a directory that exists takes the source into it, SRC/. means the
contents of SRC. "-" as SRC is a tar stream from stdin, as DST one to stdout.`,
		Example: `  sandboxctl cp ./src demo:/workspace
  sandboxctl cp demo:/workspace/report.csv .
  tar c . | sandboxctl cp - demo:/workspace`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("cp takes a source and a destination, not %d arguments", len(args))
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&options.follow, "follow-link", "L", false, "copy what symbolic links point to")
	flags.BoolVarP(&options.quiet, "quiet", "q", false, "show no progress")
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runCp(ctx, options, args[0], args[1])
	})
}

// cpResult is cp's JSON.
type cpResult struct {
	output.Header
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Files       int64  `json:"files"`
	Directories int64  `json:"directories"`
	Links       int64  `json:"links"`
	// Bytes is the sum of the files' sizes.
	Bytes int64 `json:"bytes"`
	// Skipped says what was left out and why.
	Skipped []string `json:"skipped"`
}

func (a *App) runCp(ctx context.Context, options *cpOptions, source, destination string) (output.Result, error) {
	src, dst, err := transfer.ParsePair(source, destination)
	if err != nil {
		return nil, err
	}
	result := &cpResult{Source: source, Destination: destination, Skipped: []string{}}
	if options.quiet {
		a.printer.NoStatus()
	}
	copier, err := a.openCopier(ctx, src, dst, options)
	if err != nil {
		return result, err
	}
	defer copier.close()
	stats, err := copier.run(ctx)
	result.Files, result.Directories, result.Links, result.Bytes = stats.Files, stats.Dirs, stats.Links, stats.Bytes
	result.Skipped = append(result.Skipped, stats.Skipped...)
	for _, skipped := range stats.Skipped {
		a.printer.Warn("%s", skipped)
	}
	return result, err
}

// progress shows how far a copy is.
func (a *App) progress() transfer.Progress {
	return func(bytes int64) { a.printer.Status("copied %s", spec.FormatSize(uint64(bytes))) }
}
