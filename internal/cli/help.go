package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/docs/schema"
	"github.com/sandboxctl/sandboxctl/internal/cli/output"
)

// helpResult is the JSON of help, of --help, and of a command that only holds others.
type helpResult struct {
	output.Header
	// Topic is the command or the topic that is explained; empty for sandboxctl itself.
	Topic string `json:"topic"`
	// Help is the text that people read.
	Help string `json:"help"`
	// Schemas are the JSON Schemas of results, by kind; only `help json` has them.
	Schemas map[string]json.RawMessage `json:"schemas,omitempty"`
}

func (r *helpResult) Text(p *output.Printer) { p.Prose(r.Help) }

const topicJSON = "json"

// installHelp gives every way of asking for help an answer in JSON too. Help does not
// read the configuration: it has to work when that is broken.
func (a *App) installHelp(root *cobra.Command) {
	// Cobra leaves it to the terminal to break lines, which does it within words. A width
	// of 0, where there is no terminal, breaks none.
	wrapped := fmt.Sprintf("FlagUsagesWrapped %d |", output.TerminalWidth(a.Stdout))
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages |", wrapped))
	help := &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Explain a command or a topic",
		Long:  "Help explains a command or a topic. `sandboxctl help json KIND` shows the JSON Schema\nof a kind of result.",
	}
	tell := func(result *helpResult) error { return a.tellHelp(help, result) }
	help.ValidArgsFunction = a.completing(completeTopics(root))
	help.RunE = func(_ *cobra.Command, args []string) error { return a.runHelp(root, args, tell) }
	write := root.HelpFunc()
	root.SetHelpFunc(func(command *cobra.Command, _ []string) {
		var text bytes.Buffer
		root.SetOut(&text)
		write(command, nil)
		root.SetOut(a.Stdout)
		// Cobra's help functions return nothing; Execute looks at what is kept here.
		a.helpError = tell(&helpResult{Topic: kindOf(command), Help: text.String()})
	})
	root.SetHelpCommand(help)
}

func (a *App) runHelp(root *cobra.Command, args []string, tell func(*helpResult) error) error {
	command, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err
	case command.Name() == topicJSON && len(rest) > 0:
		kind := strings.Join(rest, " ")
		data, err := schema.Read(kind)
		if err != nil {
			return err
		}
		return tell(&helpResult{Topic: topicJSON + " " + kind, Help: string(data), Schemas: map[string]json.RawMessage{kind: data}})
	case len(rest) > 0:
		return fmt.Errorf("there is no help on %q; `sandboxctl --help` lists the commands", strings.Join(args, " "))
	}
	command.InitDefaultHelpFlag()
	return command.Help()
}

func (a *App) tellHelp(help *cobra.Command, result *helpResult) error {
	a.printer = a.newPrinter(a.guessFormat(), "auto")
	if err := a.selectField(help); err != nil {
		return a.finish(help, nil, err)
	}
	if result.Topic == topicJSON {
		result.Help = fmt.Sprintf("%s\n\nKinds: %s.\n", strings.TrimRight(result.Help, "\n"), strings.Join(schema.Kinds(), ", "))
		result.Schemas = map[string]json.RawMessage{}
		for _, kind := range schema.Kinds() {
			data, err := schema.Read(kind)
			if err != nil {
				return a.finish(help, nil, err)
			}
			result.Schemas[kind] = data
		}
	}
	return a.finish(help, result, nil)
}
