//go:build unix

package cli_test

import "testing"

// completeAll is what zsh and fish have to complete, to the same lines.
func completeAll(complete func(typed, completed string)) {
	complete("sandboxctl insp", "sandboxctl inspect ")
	complete("sandboxctl inspect al", "sandboxctl inspect alpha ")
	complete("sandboxctl rm alpha ", "sandboxctl rm alpha beta ")
	complete("sandboxctl create --driver min", "sandboxctl create --driver minimal ")
	complete("sandboxctl create --network=o", "sandboxctl create --network=open ")
	complete("sandboxctl ls al", "sandboxctl ls alpha:")
	complete("sandboxctl ls alpha:tr", "sandboxctl ls alpha:tree/")
	complete("sandboxctl cp alpha:tree/fi", "sandboxctl cp alpha:tree/first ")
	complete("sandboxctl cp alpha:tree/a", `sandboxctl cp alpha:tree/a\ name `)
	complete("sandboxctl cp loc", `sandboxctl cp local\ file `)
}

// zshSetup loads the script as a package installs it: as a function on fpath.
const zshSetup = `autoload -U compinit; compinit -u -D; source SCRIPT
unsetopt zle_bracketed_paste; show-line() { print -r -- "LINE<$BUFFER>" }; zle -N show-line; bindkey '^T' show-line`

func TestCompletionInZsh(t *testing.T) {
	env, _, here := completionPlace(t)
	shell := shellWithCompletion(t, env, here, "_sandboxctl", zshSetup, "zsh", "-f", "-i")
	completeAll(completions{shell, "\x14\x15"}.complete)
}

const fishSetup = `source SCRIPT
bind \ct 'echo "LINE<"(commandline)">"'; bind \cu 'commandline ""'`

func TestCompletionInFish(t *testing.T) {
	env, _, here := completionPlace(t)
	shell := shellWithCompletion(t, env, here, "sandboxctl.fish", fishSetup, "fish", "--no-config", "-i")
	completeAll(completions{shell, "\x14\x15"}.complete)
}
