package opensandbox

import (
	"bytes"
	"sync"
	"time"
)

// execd drops a client that does not read for ten seconds, but the caller of a command may well pause for longer.
// Above the high mark the websocket is not read, which slows the command down by itself; when that has lasted for
// some time, output is read on, and the command is stopped until the spool is below the low mark.
const (
	spoolHigh     = 4 << 20
	spoolLow      = 1 << 20
	spoolPatience = 4 * time.Second
	// spoolMost is kept of a command that goes on writing although it was stopped: what it started may have left its
	// process group. Then the connection is left to execd, which may drop it.
	spoolMost = 32 << 20
)

type chunk struct {
	stderr bool
	data   []byte
}

// spool is a queue of output between the websocket and the caller.
type spool struct {
	mu      sync.Mutex
	changed sync.Cond
	chunks  []chunk
	size    int
	closed  bool
	stopped bool
	// flow is told to stop the command and to let it go on.
	flow func(stop bool)
}

func newSpool(flow func(stop bool)) *spool {
	s := &spool{flow: flow}
	s.changed.L = &s.mu
	return s
}

// mergeBelow is the size up to which output of the same channel joins the chunk before it.
const mergeBelow = 32 << 10

// add appends a copy of the data, and waits for a while when there is much already.
func (s *spool) add(stderr bool, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitForRoom()
	if last := len(s.chunks) - 1; last >= 0 && s.chunks[last].stderr == stderr && len(s.chunks[last].data)+len(data) <= mergeBelow {
		s.chunks[last].data = append(s.chunks[last].data, data...)
	} else {
		s.chunks = append(s.chunks, chunk{stderr, bytes.Clone(data)})
	}
	s.size += len(data)
	s.changed.Broadcast()
}

func (s *spool) waitForRoom() {
	if s.stopped {
		for s.size > spoolMost && s.stopped && !s.closed {
			s.changed.Wait()
		}
		return
	}
	if s.size <= spoolHigh {
		return
	}
	var over bool
	timer := time.AfterFunc(spoolPatience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		over = true
		s.changed.Broadcast()
	})
	defer timer.Stop()
	for s.size > spoolHigh && !over && !s.closed {
		s.changed.Wait()
	}
	if over && !s.closed && s.size > spoolHigh {
		s.stopped = true
		s.flow(true)
	}
}

// next waits for output and returns false when no more comes.
func (s *spool) next() (chunk, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.chunks) == 0 && !s.closed {
		s.changed.Wait()
	}
	if len(s.chunks) == 0 {
		return chunk{}, false
	}
	c := s.chunks[0]
	s.chunks = s.chunks[1:]
	s.size -= len(c.data)
	if s.stopped && s.size < spoolLow {
		s.stopped = false
		s.flow(false)
	}
	s.changed.Broadcast()
	return c, true
}

// close lets next return false once what is there was taken; with drop, at once.
func (s *spool) close(drop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if drop {
		s.chunks = nil
	}
	s.changed.Broadcast()
}
