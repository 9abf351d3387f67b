package sbx

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Every frame of stdin costs a process in the guest, so small writes are joined: after
// a small frame the next one waits a moment for more.
const (
	largestFrame = 512 << 10
	smallFrame   = 32 << 10
	joinDelay    = 2 * time.Millisecond
)

// joiner collects what is read and hands it out in large pieces.
type joiner struct {
	mu      sync.Mutex
	changed sync.Cond
	data    []byte
	ended   bool // nothing more will be read
	closed  bool // nothing more is wanted
}

func newJoiner() *joiner {
	j := &joiner{}
	j.changed.L = &j.mu
	return j
}

// fill reads until the end, or until nothing more is wanted and a read returns.
func (j *joiner) fill(r io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.Read(buffer)
		j.mu.Lock()
		for len(j.data) >= largestFrame && !j.closed {
			j.changed.Wait()
		}
		j.data = append(j.data, buffer[:n]...)
		j.ended = err != nil
		stop := j.ended || j.closed
		j.changed.Broadcast()
		j.mu.Unlock()
		if stop {
			return
		}
	}
}

// take waits for data and removes it. It returns nil at the end.
func (j *joiner) take() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.data) == 0 && !j.ended && !j.closed {
		j.changed.Wait()
	}
	if j.closed {
		return nil
	}
	n := min(len(j.data), largestFrame)
	taken := j.data[:n:n]
	j.data = append([]byte(nil), j.data[n:]...)
	j.changed.Broadcast()
	return taken
}

func (j *joiner) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	j.changed.Broadcast()
}

// sendStdin sends everything in frames, and then that it was all.
func (s *session) sendStdin() {
	<-s.planned
	for {
		data := s.stdin.take()
		if len(data) == 0 {
			s.send([]byte("e\n"))
			return
		}
		s.send(append(fmt.Appendf(nil, "d %d\n", len(data)), data...))
		if len(data) < smallFrame {
			time.Sleep(joinDelay)
		}
	}
}
