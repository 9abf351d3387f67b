package transfer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
)

// archive reads a tar stream and insists on its end. archive/tar takes a stream
// that stops between two entries for a complete one; here only the two zero
// blocks that close an archive do, so that no cut goes unnoticed.
type archive struct {
	tr  *tar.Reader
	src *source
}

func newArchive(ctx context.Context, r io.Reader) *archive {
	src := &source{ctx: ctx, r: r}
	return &archive{tr: tar.NewReader(src), src: src}
}

// next gives the next header, or io.EOF once the archive's end and the end of
// the stream were both seen.
func (a *archive) next() (*tar.Header, error) {
	hdr, err := a.tr.Next()
	switch {
	case err == nil, errors.Is(err, tar.ErrInsecurePath): // names are judged by tree
		return hdr, nil
	case !errors.Is(err, io.EOF):
		return nil, a.explain(err)
	case a.src.ended:
		return nil, errTruncated()
	}
	if err := a.drain(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// Read reads the content of the current entry.
func (a *archive) Read(p []byte) (int, error) { return a.tr.Read(p) }

// explain turns an error met while reading into the one to report: the
// sender's own error before anything the parser made of it.
func (a *archive) explain(err error) error {
	var own *Error
	switch {
	case a.src.err != nil:
		return a.src.err
	case errors.As(err, &own):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errTruncated()
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return &Error{Class: ClassCorrupt, Reason: "the stream is not a valid tar archive", Err: err}
	default:
		return err
	}
}

// maxPadding is far above the record sizes that tar programs pad to.
const maxPadding = 1 << 20

// drain reads the padding up to the end of the stream. The sender must be able
// to finish its write, and only now does its last word, an error perhaps, come.
func (a *archive) drain() error {
	buf := make([]byte, 32<<10)
	zero := make([]byte, len(buf))
	for total := 0; total <= maxPadding; {
		n, err := a.src.Read(buf)
		if !bytes.Equal(buf[:n], zero[:n]) {
			return &Error{Class: ClassCorrupt, Reason: "the stream goes on after the end of the archive"}
		}
		total += n
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return &Error{Class: ClassCorrupt, Reason: "the stream goes on after the end of the archive"}
}

func errTruncated() error {
	return &Error{Class: ClassTruncated, Reason: "the stream ended before the archive did; what had not arrived is missing", Err: io.ErrUnexpectedEOF}
}

// source remembers how the stream ended and stops reading when ctx is done.
type source struct {
	ctx context.Context
	r   io.Reader
	// pending is an error that came together with the last bytes.
	pending error
	// ended is set once a read had nothing to give but io.EOF. A complete
	// archive never gets there while it is being parsed.
	ended bool
	// err is the error of the sender, if it is not io.EOF.
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, s.fail(context.Cause(s.ctx))
	}
	if s.pending != nil {
		return 0, s.fail(s.pending)
	}
	n, err := s.r.Read(p)
	if n > 0 {
		s.pending = err
		return n, nil
	}
	if err != nil {
		return 0, s.fail(err)
	}
	return 0, nil
}

func (s *source) fail(err error) error {
	if errors.Is(err, io.EOF) {
		s.ended = true
		return io.EOF
	}
	s.err = err
	return err
}

// isSparse reports an entry whose size is not what the stream holds.
func isSparse(hdr *tar.Header) bool {
	if hdr.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range hdr.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}
