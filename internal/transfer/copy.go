package transfer

import (
	"context"
	"errors"
	"io"
)

// bufferSize matches the largest data chunk of the driver protocol, so that one
// read of a file becomes one message.
const bufferSize = 256 << 10

// Copy moves bytes from r to w until EOF and gives their number. It is for the
// single-file paths (a driver's ReadFile into WriteFileAtomic, a local file
// into WriteFile). Errors of r and w come back as they are. progress may be nil.
func Copy(ctx context.Context, w io.Writer, r io.Reader, progress Progress) (int64, error) {
	c := copier{ctx: ctx, progress: progress}
	return c.copy(w, r)
}

// copier is a plain read and write loop with one buffer. io.Copy would hand the
// work to os.File.WriteTo, which falls back to 32 KiB blocks and looks at no
// context.
type copier struct {
	ctx      context.Context
	buf      []byte
	progress Progress
	total    int64
}

func (c *copier) copy(w io.Writer, r io.Reader) (int64, error) {
	if c.buf == nil {
		c.buf = make([]byte, bufferSize)
	}
	var done int64
	for {
		if err := c.ctx.Err(); err != nil {
			return done, context.Cause(c.ctx)
		}
		n, readErr := r.Read(c.buf)
		if n > 0 {
			if _, err := w.Write(c.buf[:n]); err != nil {
				return done, err
			}
			done += int64(n)
			c.add(int64(n))
		}
		if errors.Is(readErr, io.EOF) {
			return done, nil
		}
		if readErr != nil {
			return done, readErr
		}
	}
}

func (c *copier) add(n int64) {
	c.total += n
	if c.progress != nil {
		c.progress(c.total)
	}
}
