package cli

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// interruptLimit is how long a command may take to clean up after a signal. Task
// runners send SIGKILL after five seconds.
const interruptLimit = 4900 * time.Millisecond

// echoLimit is how soon after the first a second signal is taken for the same one. The
// timeout command signals its child and then the child's group, and a signal to the
// group can reach us once more through a driver that is just being started.
const echoLimit = 100 * time.Millisecond

// WithSignals returns a context that the first INT, TERM or HUP ends, unless that signal
// was ignored when the program started. A second one, or
// a clean-up that takes too long, ends the process at once with the signal's code. The
// returned function stops the watching.
func WithSignals(ctx context.Context, exit func(code int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	for _, each := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// Who started us with nohup, or in a script's background, wants us to go on.
		if !signal.Ignored(each) {
			signal.Notify(signals, each)
		}
	}
	// A reader of stdout that goes away is an error of the write, so that the guest's
	// command can be stopped, and not a sudden death.
	ignoreBrokenPipes()
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		var first syscall.Signal
		select {
		case received := <-signals:
			first = received.(syscall.Signal)
			cancel(&interruptError{first})
		case <-done:
			return
		}
		began := time.Now()
		limit := time.NewTimer(interruptLimit)
		defer limit.Stop()
		for {
			select {
			case received := <-signals:
				if time.Since(began) < echoLimit {
					continue
				}
				exit(128 + int(received.(syscall.Signal)))
			case <-limit.C:
				exit(128 + int(first))
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-stopped
		cancel(nil)
	}
}

// signalName is a signal's name without "SIG".
func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "INT"
	case syscall.SIGTERM:
		return "TERM"
	case syscall.SIGHUP:
		return "HUP"
	}
	return strings.ToUpper(s.String())
}
