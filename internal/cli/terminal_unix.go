//go:build unix

package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// watchSize tells the terminal's size each time it changes, until it is stopped.
func watchSize(terminal *os.File) (sizes <-chan plugin.TerminalSize, stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	told := make(chan plugin.TerminalSize, 1)
	finished := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		defer close(told)
		for {
			select {
			case <-changed:
			case <-finished:
				return
			}
			select {
			case told <- terminalSize(terminal):
			case <-finished:
				return
			}
		}
	})
	return told, sync.OnceFunc(func() {
		signal.Stop(changed)
		close(finished)
		watcher.Wait()
	})
}
