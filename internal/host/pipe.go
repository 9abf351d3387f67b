package host

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// pipe is the reading end of a driver's stdout or stderr. It shows all that is read
// to an observer first.
type pipe struct {
	file, childEnd *os.File
	observer       io.Writer

	once sync.Once
	// drained is closed when the end was read: the observer has seen everything.
	drained chan struct{}
}

func newPipe(file, childEnd *os.File, observer io.Writer) *pipe {
	return &pipe{file: file, childEnd: childEnd, observer: observer, drained: make(chan struct{})}
}

func (p *pipe) closeChildEnd() { _ = p.childEnd.Close() }

// Read makes a cut pipe look like one at its end.
func (p *pipe) Read(buffer []byte) (int, error) {
	n, err := p.file.Read(buffer)
	_, _ = p.observer.Write(buffer[:n])
	if err != nil {
		p.once.Do(func() { close(p.drained) })
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// Close ends reading.
func (p *pipe) Close() error { return p.file.Close() }

func (p *pipe) cut(after time.Duration) {
	_ = p.file.SetReadDeadline(time.Now().Add(after))
}

// handshakeKept is how much of a first line is kept, in bytes. A handshake with a
// certificate has about a thousand.
const handshakeKept = 4 << 10

// firstLine keeps the first line of a driver's stdout, which shall be the handshake.
type firstLine struct {
	mu    sync.Mutex
	text  []byte
	ended bool
}

// Write never fails.
func (f *firstLine) Write(data []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		var line []byte
		line, _, f.ended = bytes.Cut(data, []byte("\n"))
		f.text = append(f.text, line[:min(len(line), handshakeKept-len(f.text))]...)
	}
	return len(data), nil
}

// line returns the line and whether anything came at all.
func (f *firstLine) line() (text string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.text), f.ended || len(f.text) > 0
}
