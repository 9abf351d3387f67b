package plugin

import (
	"io"
	"sync"
)

// byteQueue is a bounded pipe whose writer is held up only when it is full, unlike
// io.Pipe, where every write waits for its reader.
type byteQueue struct {
	mu      sync.Mutex
	changed *sync.Cond
	// chunks hold size bytes; the first may have been read in part.
	chunks      [][]byte
	size, limit int
	// end is what Read returns once the data is used up; nil while open.
	end     error
	noReads bool
}

func newByteQueue(limit int) *byteQueue {
	queue := &byteQueue{limit: limit}
	queue.changed = sync.NewCond(&queue.mu)
	return queue
}

// write waits for room and drops data that nobody will read. It keeps the slice, which
// the caller must not use again.
func (q *byteQueue) write(data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.size >= q.limit && !q.noReads && q.end == nil {
		q.changed.Wait()
	}
	if !q.noReads && q.end == nil {
		q.chunks = append(q.chunks, data)
		q.size += len(data)
		q.changed.Broadcast()
	}
}

// closeWrite ends the stream: with io.EOF, or with err.
func (q *byteQueue) closeWrite(err error) {
	if err == nil {
		err = io.EOF
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.end == nil {
		q.end = err
	}
	q.changed.Broadcast()
}

// closeRead lets a waiting writer and reader go.
func (q *byteQueue) closeRead() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.noReads, q.chunks, q.size = true, nil, 0
	q.changed.Broadcast()
}

func (q *byteQueue) Read(buffer []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.size == 0 && q.end == nil && !q.noReads {
		q.changed.Wait()
	}
	if q.size == 0 {
		if q.end != nil {
			return 0, q.end
		}
		return 0, io.EOF
	}
	n := copy(buffer, q.chunks[0])
	q.chunks[0] = q.chunks[0][n:]
	if len(q.chunks[0]) == 0 {
		q.chunks = q.chunks[1:]
	}
	q.size -= n
	q.changed.Broadcast()
	return n, nil
}
