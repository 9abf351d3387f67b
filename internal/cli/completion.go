package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
)

// CompletionShells lists the shells that completion has a script for.
func CompletionShells() []string { return []string{"bash", "fish", "powershell", "zsh"} }

func (a *App) newCompletionCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the script that completes sandboxctl in a shell",
		Long: `Completion prints a script. It completes commands, flags, the names of your sandboxes,
drivers, and paths inside sandboxes.

  bash        source <(sandboxctl completion bash)         in ~/.bashrc
  zsh         source <(sandboxctl completion zsh)          in ~/.zshrc, after compinit
  fish        sandboxctl completion fish | source          in ~/.config/fish/config.fish
  powershell  sandboxctl completion powershell | Out-String | Invoke-Expression`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(CompletionShells(), args[0]) {
				return fmt.Errorf("name a shell: %s", strings.Join(CompletionShells(), ", "))
			}
			return nil
		},
		ValidArgs: CompletionShells(),
	}
	return a.runs(command, func(_ context.Context, args []string) (output.Result, error) {
		var script bytes.Buffer
		err := WriteCompletion(command.Root(), args[0], &script)
		return &completionResult{Shell: args[0], Script: script.String()}, err
	})
}

// completionResult is completion's JSON.
type completionResult struct {
	output.Header
	Shell  string `json:"shell"`
	Script string `json:"script"`
}

func (r *completionResult) Text(p *output.Printer) {
	p.Line("%s", strings.TrimSuffix(r.Script, "\n"))
}

// WriteCompletion writes the script for one of CompletionShells.
func WriteCompletion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		if err := root.GenBashCompletionV2(w, true); err != nil {
			return err
		}
		_, err := io.WriteString(w, bashWithoutPackage)
		return err
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return fmt.Errorf("there is no completion for %q", shell)
}

// bashWithoutPackage replaces the one function of cobra's script that calls the
// bash-completion package, which containers and macOS lack. Bash splits words at = and :
// too; those are rejoined where no blank stands between them.
const bashWithoutPackage = `
__sandboxctl_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local i word rest=${COMP_LINE:0:COMP_POINT}
    words=() cword=-1
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if [[ $cword -lt 0 || $rest == [[:blank:]]* ]]; then
            words[++cword]=
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        word=${COMP_WORDS[i]}
        if ((i == COMP_CWORD)); then
            word=$rest
        fi
        words[cword]+=$word
        rest=${rest#"$word"}
    done
    cur=${words[cword]} prev=
    if ((cword > 0)); then
        prev=${words[cword - 1]}
    fi
}
`
