package cli

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/config"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// completionTimeout bounds a look into a sandbox while somebody waits for the Tab key.
const completionTimeout = time.Second

// completer offers words for an argument. The prefix is what was typed of it.
type completer func(ctx context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective)

// installCompletions says what the arguments and flags of commands can be. What fails
// offers nothing: a shell has no place for an error.
func (a *App) installCompletions(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for name, complete := range map[string]completer{
		"exec": first(a.completeSandboxes), "shell": first(a.completeSandboxes), "inspect": first(a.completeSandboxes),
		"renew": first(a.completeSandboxes), "rm": a.completeSandboxes,
		"image rm": a.completeImages, "image pull": first(a.completeImages),
		"ls": first(a.completePaths), "cp": a.completeCopy,
		"doctor": a.completeDrivers, "driver info": first(a.completeDrivers), "driver test": first(a.completeDriverOrFile),
	} {
		command, _, err := root.Find(strings.Fields(name))
		if err == nil && command != root {
			command.ValidArgsFunction = a.completing(complete)
		}
	}
	a.completeFlags(root)
}

// completeFlags goes through the flags of a command and of those below it.
func (a *App) completeFlags(command *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"driver":      a.completing(a.completeDrivers),
		"output":      cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp),
		"color":       cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
		"image":       a.completing(a.completeImages),
		"network":     cobra.FixedCompletions([]string{"none", "open"}, cobra.ShellCompDirectiveNoFileComp),
		"env-file":    cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"result-file": cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	} {
		if command.Flags().Lookup(name) != nil || command.PersistentFlags().Lookup(name) != nil {
			// It fails for a flag that is not there, which was just looked up.
			_ = command.RegisterFlagCompletionFunc(name, complete)
		}
	}
	for _, below := range command.Commands() {
		a.completeFlags(below)
	}
}

// completing loads the configuration, which a completion does by itself since no
// command runs, and keeps everything off the terminal that is being typed on.
func (a *App) completing(complete completer) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		loaded, err := config.Load(a.getenv, command.Flags())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a.config = loaded
		a.config.Debug = false
		a.printer = output.New(io.Discard, io.Discard, output.Text, output.Environment{})
		ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
		defer cancel()
		return complete(ctx, args, prefix)
	}
}

// first completes the first argument only.
func first(complete completer) completer {
	return func(ctx context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(ctx, args, prefix)
	}
}

// completeSandboxes offers the names in the ledger that are not on the command line
// yet. It starts no driver.
func (a *App) completeSandboxes(ctx context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var offers []cobra.Completion
	opened, err := a.openLedger()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	records, _, err := opened.List(ctx, ledger.Filter{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, record := range records {
		if strings.HasPrefix(record.Name, prefix) && !slices.Contains(args, record.Name) {
			offers = append(offers, cobra.CompletionWithDesc(record.Name, record.Driver))
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// completePaths offers SANDBOX: and then, asking the sandbox, what is in it.
func (a *App) completePaths(ctx context.Context, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	sandbox, typed, inside := strings.Cut(prefix, ":")
	if !inside {
		offers, _ := a.completeSandboxes(ctx, nil, prefix)
		for i, offer := range offers {
			name, description, _ := strings.Cut(offer, "\t")
			offers[i] = cobra.CompletionWithDesc(name+":", description)
		}
		return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	entries, err := a.lookInto(ctx, sandbox, path.Dir(typed+"x"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dir, begun := path.Split(typed)
	directive := cobra.ShellCompDirectiveNoFileComp
	var offers []cobra.Completion
	for _, entry := range entries {
		hidden := strings.HasPrefix(entry.Name, ".") && !strings.HasPrefix(begun, ".")
		if !strings.HasPrefix(entry.Name, begun) || hidden || !oneWord(entry.Name) {
			continue
		}
		offer := sandbox + ":" + dir + entry.Name
		if entry.Kind == plugin.FileDirectory {
			offer += "/"
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		offers = append(offers, offer)
	}
	return offers, directive
}

// lookInto lists a directory in a sandbox.
func (a *App) lookInto(ctx context.Context, sandbox, dir string) ([]plugin.FileInfo, error) {
	found, err := a.open(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	defer found.driver.Close()
	return found.list(ctx, dir)
}

// oneWord says that a file's name survives the way to the shell, where a line is an
// offer and a tab begins its description.
func oneWord(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// completeCopy offers sandboxes and their files, and files of this machine where no
// sandbox begins like that.
func (a *App) completeCopy(ctx context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	offers, directive := a.completePaths(ctx, args, prefix)
	if len(offers) == 0 && !strings.Contains(prefix, ":") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return offers, directive
}

// completeDrivers offers the drivers that there are, and starts none.
func (a *App) completeDrivers(_ context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	drivers, err := a.drivers()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offers []cobra.Completion
	for _, found := range drivers.Discover() {
		if strings.HasPrefix(found.Name, prefix) && !slices.Contains(args, found.Name) {
			offers = append(offers, cobra.CompletionWithDesc(found.Name, string(found.Source)))
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// completeImages offers the images that the driver keeps, which has to be asked.
func (a *App) completeImages(ctx context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	driver, err := a.imageDriver(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer driver.Close()
	images, err := driver.ListImages(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offers []cobra.Completion
	for _, image := range images {
		for _, reference := range image.References {
			if strings.HasPrefix(reference, prefix) && !slices.Contains(args, reference) && oneWord(reference) {
				offers = append(offers, cobra.CompletionWithDesc(reference, shortDigest(image.Digest)))
			}
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

func (a *App) completeDriverOrFile(ctx context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	offers, directive := a.completeDrivers(ctx, args, prefix)
	if len(offers) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return offers, directive
}

// completeTopics offers commands and help topics.
func completeTopics(root *cobra.Command) completer {
	return func(_ context.Context, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var offers []cobra.Completion
		command, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, below := range command.Commands() {
			if strings.HasPrefix(below.Name(), prefix) && !below.Hidden {
				offers = append(offers, cobra.CompletionWithDesc(below.Name(), below.Short))
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}
