package modal

import (
	"io"
	"os"
	"path/filepath"
	"sync"
)

const (
	// backlogMemory is how much output is held in memory for a slow caller.
	backlogMemory = 4 << 20
	// backlogDisk is how much more is held on disk before Modal is slowed down.
	// The SDK lets Modal send 64 MiB that nobody has read into this process's
	// memory, which nothing but reading keeps small.
	backlogDisk = 1 << 30
)

// backlog is what a command has written and its caller has not taken yet. It is
// written by one goroutine and read by another.
type backlog struct {
	dir string // for the file

	mu      sync.Mutex
	changed *sync.Cond
	memory  []byte
	// file is a ring of backlogDisk bytes. What is in it is younger than what is
	// in memory. It is made when it is first needed.
	file          *os.File
	start, length int64
	ended         bool // no more is written
	dropped       bool // no more is read
}

func newBacklog(dir string) *backlog {
	b := &backlog{dir: dir}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// Write takes p, waiting only when the disk's share is full, or the disk itself. After
// drop it takes nothing and fails.
func (b *backlog) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	written := 0
	for written < len(p) {
		if b.dropped {
			return written, io.ErrClosedPipe
		}
		rest := p[written:]
		if b.length == 0 && len(b.memory)+len(rest) <= backlogMemory {
			b.memory = append(b.memory, rest...)
			b.changed.Broadcast()
			return len(p), nil
		}
		if b.length == backlogDisk {
			b.changed.Wait()
			continue
		}
		n, err := b.spill(rest)
		written += n
		if n == 0 && err != nil {
			// There is something to read, as nothing is spilled before the memory's
			// share is full, and reading makes room there.
			b.changed.Wait()
			continue
		}
		b.changed.Broadcast()
	}
	return written, nil
}

// spill writes as much of p to the file as fits before its end or its start.
func (b *backlog) spill(p []byte) (int, error) {
	if b.file == nil {
		if err := b.open(); err != nil {
			return 0, err
		}
	}
	at := (b.start + b.length) % backlogDisk
	room := min(backlogDisk-b.length, backlogDisk-at, int64(len(p)))
	n, err := b.file.WriteAt(p[:room], at)
	b.length += int64(n)
	return n, err
}

func (b *backlog) open() error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(b.dir, "output-")
	if err != nil {
		return err
	}
	// Without a name it cannot outlive this process. Where that is not possible,
	// as on Windows, close removes it.
	_ = os.Remove(file.Name())
	b.file = file
	return nil
}

// Read waits for something to read, or for the end.
func (b *backlog) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.memory) == 0 && b.length == 0 && !b.ended && !b.dropped {
		b.changed.Wait()
	}
	switch {
	case b.dropped:
		return 0, io.ErrClosedPipe
	case len(b.memory) > 0:
		n := copy(p, b.memory)
		b.memory = b.memory[n:]
		if len(b.memory) == 0 {
			b.memory = nil
		}
		b.changed.Broadcast()
		return n, nil
	case b.length > 0:
		n, err := b.file.ReadAt(p[:min(int64(len(p)), b.length, backlogDisk-b.start)], b.start)
		b.start = (b.start + int64(n)) % backlogDisk
		b.length -= int64(n)
		if b.length == 0 {
			b.start = 0
		}
		b.changed.Broadcast()
		if n > 0 {
			err = nil
		}
		return n, err
	default:
		return 0, io.EOF
	}
}

// end says that nothing more is written. What there is can still be read.
func (b *backlog) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.changed.Broadcast()
}

// drop ends both sides.
func (b *backlog) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped = true
	b.changed.Broadcast()
}

// close lets the file go. Neither side may be in use.
func (b *backlog) close() {
	if b.file == nil {
		return
	}
	_ = b.file.Close()
	_ = os.Remove(b.file.Name()) // it has no name any more where that is possible
}

// backlogDir is where outputs are held.
func (d *Driver) backlogDir() string { return filepath.Join(d.config.StateDir, "outputs") }
