package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
)

type createCommandOptions struct {
	createOptions
	ifNotExists, quiet bool
}

func (a *App) newCreateCommand() *cobra.Command {
	options := &createCommandOptions{}
	command := &cobra.Command{
		Use:   "create [flags]",
		Short: "Create a sandbox and print its name",
		Example: `  sandboxctl create --name demo --ttl 30m
  name=$(sandboxctl create)`,
		Args: noArgs,
	}
	flags := command.Flags()
	options.flags(flags)
	options.envFlags(flags)
	flags.StringVarP(&options.workdir, "workdir", "w", "", "the directory that commands start in")
	flags.BoolVar(&options.ifNotExists, "if-not-exists", false, "return the sandbox of that name if it was created with the same flags")
	flags.BoolVarP(&options.quiet, "quiet", "q", false, "print nothing but the name, also on a terminal")
	return a.runs(command, func(ctx context.Context, _ []string) (output.Result, error) {
		return a.runCreate(ctx, options)
	})
}

// createResult is create's JSON.
type createResult struct {
	output.Header
	output.Sandbox
	// Created is false when --if-not-exists found one.
	Created bool `json:"created"`
}

func (r *createResult) Text(p *output.Printer) { p.Line("%s", r.Name) }

func (a *App) runCreate(ctx context.Context, options *createCommandOptions) (output.Result, error) {
	request, err := options.spec(a)
	if err != nil {
		return nil, err
	}
	if options.ifNotExists && options.name == "" {
		return nil, usagef("--if-not-exists needs a --name to look for")
	}
	if options.quiet {
		a.printer.NoStatus()
	}
	made, err := a.provision(ctx, provisioning{
		driver: a.config.Driver, name: options.name, spec: request, ifNotExists: options.ifNotExists,
	})
	if err != nil {
		return nil, err
	}
	made.driver.Close()
	return &createResult{Sandbox: a.describeRecord(made.record, made.sandbox), Created: made.created}, nil
}
