package images

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// sourceError is a failure to read a layer, as opposed to what is wrong with it.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

const (
	// mostRetries is how often a download of a layer that broke off is begun again.
	mostRetries = 3
	// retryPause is how long it is waited before that, and longer each time.
	retryPause = time.Second
)

// errStalled is what a source that sends nothing any more fails with.
var errStalled = errors.New("nothing came any more")

// sourceReader reads a layer as it is stored. A download that breaks off is begun again
// and goes on where it was. It remembers what reading failed with in the end: between it
// and the tree there are readers that say something else then.
type sourceReader struct {
	ctx  context.Context
	open func(context.Context) (io.ReadCloser, error)
	// read is told how many bytes were read.
	read func(n int)
	// patience is how long the source may send nothing.
	patience, pause time.Duration

	from    *attempt
	offset  int64
	retries int
	failed  error
}

// attempt is one download. Its timer closes it, which ends a read that waits.
type attempt struct {
	io.ReadCloser
	timer   *time.Timer
	stalled atomic.Bool
}

// begin opens the source.
func (r *sourceReader) begin() error {
	opened, err := r.open(r.ctx)
	if err != nil {
		return err
	}
	fresh := &attempt{ReadCloser: opened}
	fresh.timer = time.AfterFunc(r.patience, func() {
		fresh.stalled.Store(true)
		_ = opened.Close()
	})
	r.from = fresh
	return nil
}

func (r *sourceReader) close() {
	r.from.timer.Stop()
	_ = r.from.Close()
}

func (r *sourceReader) Read(data []byte) (int, error) {
	for r.failed == nil {
		n, err := r.readOnce(data)
		if n > 0 || err == nil || errors.Is(err, io.EOF) {
			r.offset += int64(n)
			r.read(n)
			if !errors.Is(err, io.EOF) {
				// It comes again when there is nothing more.
				err = nil
			}
			return n, err
		}
		r.failed = r.again(err)
	}
	return 0, r.failed
}

func (r *sourceReader) readOnce(data []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	r.from.timer.Reset(r.patience)
	n, err := r.from.Read(data)
	// What is done with it may take longer.
	r.from.timer.Stop()
	switch {
	case r.ctx.Err() != nil:
		return n, r.ctx.Err()
	case r.from.stalled.Load():
		return n, errStalled
	}
	return n, err
}

// again begins a download again that broke off, up to where it was, or returns why not.
func (r *sourceReader) again(broken error) error {
	for r.ctx.Err() == nil && transient(broken) && r.retries < mostRetries {
		r.retries++
		select {
		case <-r.ctx.Done():
		case <-time.After(time.Duration(r.retries) * r.pause):
		}
		r.close()
		if err := r.begin(); err != nil {
			return err
		}
		if broken = r.skip(); broken == nil {
			return nil
		}
	}
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	return broken
}

// skip reads what was read before.
func (r *sourceReader) skip() error {
	buffer := make([]byte, 256<<10)
	for left := r.offset; left > 0; {
		n, err := r.readOnce(buffer[:min(left, int64(len(buffer)))])
		left -= int64(n)
		if left > 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// prefer returns the failure to read, if there was one, instead of its consequence.
func (r *sourceReader) prefer(err error) error {
	if r.failed != nil {
		return &sourceError{r.failed}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is cut short")
	}
	return err
}
