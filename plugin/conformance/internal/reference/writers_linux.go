package reference

import (
	"io"
	"sync"
)

// locked lets two channels share a writer.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(data)
}

// lastByte remembers how the output ends.
type lastByte struct {
	w     io.Writer
	seen  bool
	value byte
}

func (l *lastByte) Write(data []byte) (int, error) {
	if len(data) > 0 {
		l.seen, l.value = true, data[len(data)-1]
	}
	return l.w.Write(data)
}

// changing writes something else than it is given.
type changing struct {
	w      io.Writer
	change func([]byte) []byte
}

func changedBy(w io.Writer, change func([]byte) []byte) io.Writer { return &changing{w, change} }

func (c *changing) Write(data []byte) (int, error) {
	_, err := c.w.Write(c.change(data))
	return len(data), err
}

// withoutTail never lets out the last bytes of an output that is long.
type withoutTail struct {
	w       io.Writer
	written int
	held    []byte
}

func (t *withoutTail) Write(data []byte) (int, error) {
	const long, lost = 100_000, 3
	t.written += len(data)
	if t.written < long {
		return t.w.Write(data)
	}
	t.held = append(t.held, data...)
	out := t.held[:max(0, len(t.held)-lost)]
	t.held = append([]byte{}, t.held[len(out):]...)
	_, err := t.w.Write(out)
	return len(data), err
}

// readAhead takes output faster than it can be passed on, up to a bound that keeps
// the machine safe.
type readAhead struct {
	mu     sync.Mutex
	change *sync.Cond
	data   []byte
	closed bool
	done   chan struct{}
}

const mostAhead = 300 << 20

func newReadAhead(w io.Writer) *readAhead {
	ahead := &readAhead{done: make(chan struct{})}
	ahead.change = sync.NewCond(&ahead.mu)
	go ahead.pass(w)
	return ahead
}

func (a *readAhead) Write(data []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.data) > mostAhead && !a.closed {
		a.change.Wait()
	}
	a.data = append(a.data, data...)
	a.change.Broadcast()
	return len(data), nil
}

func (a *readAhead) pass(w io.Writer) {
	defer close(a.done)
	for {
		a.mu.Lock()
		for len(a.data) == 0 && !a.closed {
			a.change.Wait()
		}
		n := min(len(a.data), 64<<10)
		out := append([]byte{}, a.data[:n]...)
		a.data = a.data[n:]
		a.change.Broadcast()
		finished := a.closed && n == 0
		a.mu.Unlock()
		if finished {
			return
		}
		if _, err := w.Write(out); err != nil {
			a.fail()
			return
		}
	}
}

func (a *readAhead) fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed, a.data = true, nil
	a.change.Broadcast()
}

func (a *readAhead) close() {
	a.mu.Lock()
	a.closed = true
	a.change.Broadcast()
	a.mu.Unlock()
	<-a.done
}
