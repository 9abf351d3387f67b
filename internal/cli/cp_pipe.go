package cli

import (
	"context"
	"errors"
	"io"

	"github.com/sandboxctl/sandboxctl/internal/transfer"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// pipe runs both ends of a copy and waits for both. The end that fails first decides
// on the error: the other one then only complains of a broken pipe.
func (c *copier) pipe(
	ctx context.Context,
	produce func(context.Context, io.Writer) (transfer.Stats, error),
	consume func(context.Context, io.Reader) (transfer.Stats, error),
) (transfer.Stats, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reader, writer := io.Pipe()
	// A read of stdin cannot be interrupted; closing the pipe frees the other end.
	stop := context.AfterFunc(ctx, func() { writer.CloseWithError(context.Cause(ctx)) })
	defer stop()

	type outcome struct {
		stats transfer.Stats
		err   error
	}
	produced := make(chan outcome, 1)
	go func() {
		stats, err := produce(ctx, writer)
		writer.CloseWithError(err)
		produced <- outcome{stats, err}
	}()
	consumed, consumeErr := consume(ctx, reader)
	if consumeErr == nil {
		// What is left is padding behind the archive's end.
		_, consumeErr = io.Copy(io.Discard, reader)
	}
	reader.CloseWithError(errOtherEnd)
	if consumeErr != nil {
		cancel()
	}
	var first outcome
	select {
	case first = <-produced:
	case <-ctx.Done():
		// A producer that sits in a read of stdin cannot be waited for.
		first.err = errOtherEnd
	}
	stats := addStats(first.stats, consumed)
	switch {
	case first.err != nil && !isOtherEnd(first.err):
		return stats, first.err
	case consumeErr != nil:
		return stats, consumeErr
	}
	return stats, first.err
}

// errOtherEnd is what one end of a pipe sees when the other has failed.
var errOtherEnd = errors.New("the other end of the copy failed")

func isOtherEnd(err error) bool {
	return errors.Is(err, errOtherEnd) || errors.Is(err, context.Canceled) || errors.Is(err, io.ErrClosedPipe)
}

func addStats(x, y transfer.Stats) transfer.Stats {
	return transfer.Stats{
		Files: x.Files + y.Files, Dirs: x.Dirs + y.Dirs, Links: x.Links + y.Links, Bytes: x.Bytes + y.Bytes,
		Skipped: append(x.Skipped, y.Skipped...),
	}
}

func asDriverError(err error) (*plugin.Error, bool) {
	var typed *plugin.Error
	ok := errors.As(err, &typed)
	return typed, ok
}

// countingWriter shows progress of what is written.
type countingWriter struct {
	to       io.Writer
	progress transfer.Progress
	bytes    int64
}

func (w *countingWriter) Write(data []byte) (int, error) {
	n, err := w.to.Write(data)
	w.bytes += int64(n)
	if w.progress != nil {
		w.progress(w.bytes)
	}
	return n, err
}

// countingReader shows progress of what is read, and notices a file that changes.
type countingReader struct {
	from     io.Reader
	progress transfer.Progress
	bytes    int64
	left     int64
	name     string
}

func (r *countingReader) Read(buffer []byte) (int, error) {
	n, err := r.from.Read(buffer)
	r.bytes += int64(n)
	r.left -= int64(n)
	switch {
	case r.left < 0:
		return 0, errChanged(r.name, "grew")
	case errors.Is(err, io.EOF) && r.left > 0:
		return n, errChanged(r.name, "shrank")
	}
	if r.progress != nil && n > 0 {
		r.progress(r.bytes)
	}
	return n, err
}
