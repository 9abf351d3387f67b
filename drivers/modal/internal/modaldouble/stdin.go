//go:build linux

package modaldouble

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// stdin is the input of a process, written at explicit offsets so that a client
// can resume.
type stdin struct {
	mu     sync.Mutex
	to     io.Writer
	finish func() error // passes the end of input on
	abort  func()       // releases to when the process is over
	offset uint64
	eof    bool
	over   bool
}

// write accepts data at offset. A second end marker is ignored.
func (s *stdin) write(ctx context.Context, offset uint64, data []byte, eof bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return status.Error(codes.FailedPrecondition, "the process has exited")
	}
	if s.eof {
		if eof && len(data) == 0 {
			return nil
		}
		return status.Error(codes.FailedPrecondition, "stdin is closed")
	}
	if offset+uint64(len(data)) <= s.offset && len(data) > 0 {
		return nil // a retry of what has already been written
	}
	if offset != s.offset {
		return status.Errorf(codes.FailedPrecondition, "offset %d does not match %d", offset, s.offset)
	}
	if err := s.forward(ctx, data); err != nil {
		return err
	}
	if eof {
		s.eof = true
		if err := s.finish(); err != nil {
			return status.Error(codes.FailedPrecondition, "the process has closed its stdin")
		}
	}
	return nil
}

func (s *stdin) forward(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if file, ok := s.to.(*os.File); ok {
		// A process that does not read blocks the write; a client that leaves
		// must not.
		_ = file.SetWriteDeadline(time.Time{})
		stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Now()) })
		defer stop()
	}
	n, err := s.to.Write(data)
	s.offset += uint64(n)
	if ctx.Err() != nil && err != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		return status.Error(codes.FailedPrecondition, "the process has closed its stdin")
	}
	return nil
}

func (s *stdin) state() (written uint64, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset, s.eof || s.over
}

// end releases a writer that is blocked on a process that is over.
func (s *stdin) end() {
	if file, ok := s.to.(*os.File); ok {
		_ = file.SetWriteDeadline(time.Now())
	}
	s.abort()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}
