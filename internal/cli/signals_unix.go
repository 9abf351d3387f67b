//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// ignoreBrokenPipes makes writes to a pipe without a reader fail and nothing more. The
// signal is taken rather than ignored, since children would inherit that.
func ignoreBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
