// Generate writes what is made from sandboxctl's commands and types: the JSON Schemas,
// the completion scripts and the manual pages.
//
// Usage, in the module's folder: generate schemas|completions|man DIR
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/sandboxctl/sandboxctl/docs/schema"
	"github.com/sandboxctl/sandboxctl/internal/cli"
	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/cli/schemagen"
)

const module = "github.com/sandboxctl/sandboxctl"

func main() {
	generators := map[string]func(dir string) error{"schemas": schemas, "completions": completions, "man": manual}
	if len(os.Args) != 3 || generators[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: generate schemas|completions|man DIR")
		os.Exit(2)
	}
	err := os.MkdirAll(os.Args[2], 0o755)
	if err == nil {
		err = generators[os.Args[1]](os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func schemas(dir string) error {
	generator := schemagen.New(".", module)
	failure, err := generator.Failure(reflect.TypeFor[output.Header]())
	if err != nil {
		return err
	}
	if err := writeSchema(dir, schema.Failure, failure); err != nil {
		return err
	}
	for kind, results := range cli.ResultTypes() {
		described, err := generator.Kind(kind, results)
		if err != nil {
			return err
		}
		if err := writeSchema(dir, kind, described); err != nil {
			return err
		}
	}
	return nil
}

func writeSchema(dir, kind string, described *jsonschema.Schema) error {
	line, err := json.Marshal(described)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, line, "", "  "); err != nil {
		return err
	}
	indented.WriteByte('\n')
	return os.WriteFile(filepath.Join(dir, schema.FileName(kind)), indented.Bytes(), 0o644)
}

// completionFiles are the names under which shells and packages look for the scripts.
var completionFiles = map[string]string{
	"bash": "sandboxctl.bash", "fish": "sandboxctl.fish", "powershell": "sandboxctl.ps1", "zsh": "_sandboxctl",
}

func completions(dir string) error {
	root := cli.NewApp(cli.Build{}).NewRootCommand()
	for _, shell := range cli.CompletionShells() {
		var script bytes.Buffer
		if err := cli.WriteCompletion(root, shell, &script); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, completionFiles[shell]), script.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manual writes a page for each command, in section 1, and for each help topic, in 7.
func manual(dir string) error {
	root := cli.NewApp(cli.Build{}).NewRootCommand()
	root.DisableAutoGenTag = true
	indentExamples(root)
	header := func(section string) *doc.GenManHeader {
		return &doc.GenManHeader{Section: section, Manual: "sandboxctl", Source: "sandboxctl"}
	}
	for _, topic := range root.Commands() {
		if !topic.IsAdditionalHelpTopicCommand() {
			continue
		}
		topic.DisableFlagsInUseLine = true
		var page bytes.Buffer
		if err := doc.GenMan(topic, header("7"), &page); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "sandboxctl-"+topic.Name()+".7"), page.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return doc.GenManTree(root, header("1"), dir)
}

// indentExamples makes indented lines of help texts code in Markdown, which cobra takes
// them for: two blanks would let them flow into one paragraph.
func indentExamples(command *cobra.Command) {
	command.Long = strings.ReplaceAll(command.Long, "\n  ", "\n      ")
	for _, below := range command.Commands() {
		indentExamples(below)
	}
}
