package opensandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// read takes everything the daemon sends until the command's end, or the connection's.
func (r *run) read(ctx context.Context, token string) {
	defer close(r.ended)
	out := newMarkScanner(token, func(p []byte) { r.spool.add(false, p) }, r.mark)
	errs := newMarkScanner(token, func(p []byte) { r.spool.add(true, p) }, r.mark)
	for !r.finished() {
		kind, data, err := r.s.next(ctx)
		if err != nil {
			out.flush()
			errs.flush()
			r.lost = err
			return
		}
		switch {
		case kind == websocket.MessageText:
			if r.lost = controlError(data); r.lost != nil {
				out.flush()
				errs.flush()
				return
			}
		case len(data) == 0:
		case data[0] == frameStdout:
			out.write(data[1:])
		case data[0] == frameStderr:
			errs.write(data[1:])
		case data[0] == frameReplay && len(data) > 9:
			// Nothing is printed before the program is sent, so this is at most the terminal's readiness.
			out.write(data[9:])
		}
	}
}

// finished: the program has marked the end on each channel, or given up before there was a command.
func (r *run) finished() bool {
	channels := 2
	if r.req.TTY {
		channels = 1
	}
	return r.marks >= channels || r.dirError != ""
}

// processEnd is a session whose process ended, which the program never does by itself.
type processEnd struct{ code int }

func (e processEnd) Error() string {
	return fmt.Sprintf("the shell around the command ended with status %d", e.code)
}

// daemonError is what execd says about a session before it gives it up.
type daemonError struct{ code, text string }

func (e daemonError) Error() string { return fmt.Sprintf("execd reported %s: %s", e.code, e.text) }

func controlError(data []byte) error {
	var c control
	if json.Unmarshal(data, &c) != nil {
		return nil
	}
	switch c.Type {
	case "exit":
		return processEnd{c.ExitCode}
	case "error":
		return daemonError{c.Code, c.Error}
	}
	return nil
}

// mark handles a word from the program: r ready, s PID started, a acknowledged, t deadline, x STATUS ended,
// d REASON directory.
func (r *run) mark(word string) {
	verb, value, _ := strings.Cut(word, " ")
	number, _ := strconv.Atoi(value)
	switch verb {
	case "r":
		trySend(r.ready, struct{}{})
	case "s":
		trySend(r.started, number)
	case "a":
		trySend(r.acks, struct{}{})
	case "t":
		r.timedOut = true
	case "x":
		r.status = number
		r.marks++
	case "d":
		r.dirError = value
	}
}

func trySend[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

// deliver hands the output to the caller, as fast as the caller takes it.
func (r *run) deliver() {
	for {
		c, ok := r.spool.next()
		if !ok {
			return
		}
		w := r.stdio.Stdout
		if c.stderr {
			w = r.stdio.Stderr
		}
		// A caller that has gone ends the context, which is what ends the command.
		_, _ = w.Write(c.data)
	}
}

// feed sends stdin, a frame at a time.
func (r *run) feed(ctx context.Context) {
	if !r.req.Stdin {
		return
	}
	buf := make([]byte, stdinFrame)
	for {
		n, err := r.stdio.Stdin.Read(buf)
		if n > 0 && !r.feedFrame(ctx, buf[:n]) {
			return
		}
		if errors.Is(err, io.EOF) {
			// On a terminal, end of input is a key.
			last := []byte("e\n")
			if r.req.TTY {
				last = []byte{0x04}
			}
			_ = r.s.sendStdin(ctx, last)
		}
		if err != nil {
			return
		}
	}
}

func (r *run) feedFrame(ctx context.Context, data []byte) bool {
	if r.req.TTY {
		return r.s.sendStdin(ctx, data) == nil
	}
	if r.s.sendFrame(ctx, data) != nil {
		return false
	}
	select {
	case <-r.acks:
		return true
	case <-r.ended:
	case <-ctx.Done():
	}
	return false
}

// forward sends signals and terminal sizes.
func (r *run) forward(ctx context.Context, group int) {
	resize, signals := r.stdio.Resize, r.stdio.Signals
	for resize != nil || signals != nil {
		select {
		case size, ok := <-resize:
			if !ok {
				resize = nil
			} else if r.req.TTY {
				_ = r.s.resize(ctx, size)
			}
		case name, ok := <-signals:
			if !ok {
				signals = nil
			} else if err := r.execd.signal(ctx, name, group); err != nil {
				r.driver.logger.Debug("a signal was not delivered", "signal", name, "error", err)
			}
		case <-r.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// throttle stops the command while the spool is too full.
func (r *run) throttle(ctx context.Context, group int) {
	for {
		select {
		case stop := <-r.flow:
			name := "CONT"
			if stop {
				name = "STOP"
			}
			if err := r.execd.signal(ctx, name, group); err != nil {
				r.driver.logger.Debug("the command was not slowed down", "signal", name, "error", err)
			}
		case <-r.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// watchConnection notices a connection that is dead without having been closed.
func (r *run) watchConnection(ctx context.Context, disconnect func()) {
	for pauseUntil(ctx, r.ended, keepAlive) {
		pctx, cancel := context.WithTimeout(ctx, keepAlive)
		err := r.s.conn.Ping(pctx)
		cancel()
		if err != nil {
			disconnect()
			return
		}
	}
}

// pauseUntil waits, and reports false when something ended first.
func pauseUntil(ctx context.Context, ended <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-ended:
		return false
	case <-t.C:
		return true
	}
}
