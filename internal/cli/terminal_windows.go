package cli

import (
	"os"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// watchSize tells nothing: Windows has no signal for a resized console.
func watchSize(*os.File) (sizes <-chan plugin.TerminalSize, stop func()) {
	return nil, func() {}
}
