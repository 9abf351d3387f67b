//go:build linux

package modaldouble

import (
	"context"
	"sync"
)

const (
	// resumeWindow is kept behind the furthest reader, for one that comes back
	// after a broken connection: more than a client's flow control window.
	resumeWindow = 72 << 20
	// chunkSize is the largest message of output.
	chunkSize = 64 << 10
)

// output is one stream of a process. It is kept until it has been read, so that
// a client may read after the process has ended, and a writer that is ahead of
// every reader by more than the limit waits.
type output struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	data    []byte
	start   uint64 // offset of data[0]
	read    uint64 // furthest offset handed to a reader
	limit   uint64
	closed  bool
}

func newOutput(limit uint64) *output {
	return &output{changed: make(chan struct{}), limit: limit}
}

func (o *output) notifyLocked() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// Write appends p. After close it drops p, as a process may outlive its exec.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.start+uint64(len(o.data))-o.read > o.limit {
		changed := o.changed
		o.mu.Unlock()
		<-changed
		o.mu.Lock()
	}
	if !o.closed {
		o.data = append(o.data, p...)
		o.notifyLocked()
	}
	return len(p), nil
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.notifyLocked()
	}
}

// next returns the bytes at offset, waiting for some. It returns nothing once
// the stream has ended there.
func (o *output) next(ctx context.Context, offset uint64) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		end := o.start + uint64(len(o.data))
		if offset < end {
			return o.takeLocked(max(offset, o.start)), nil
		}
		if o.closed {
			return nil, nil
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
			o.mu.Lock()
		case <-ctx.Done():
			o.mu.Lock()
			return nil, ctx.Err()
		}
	}
}

func (o *output) takeLocked(offset uint64) []byte {
	from := offset - o.start
	chunk := append([]byte(nil), o.data[from:min(from+chunkSize, uint64(len(o.data)))]...)
	if after := offset + uint64(len(chunk)); after > o.read {
		o.read = after
		if o.read-o.start > 2*resumeWindow {
			drop := o.read - o.start - resumeWindow
			o.data = append([]byte(nil), o.data[drop:]...)
			o.start += drop
		}
		o.notifyLocked()
	}
	return chunk
}
