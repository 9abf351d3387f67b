package plugin

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// writeChunks sends data in messages of at most maxChunk bytes and returns how much
// was sent, as io.Writer wants it.
func writeChunks(data []byte, send func([]byte) error) (int, error) {
	sent := 0
	for len(data) > 0 {
		chunk := data[:min(len(data), maxChunk)]
		if err := send(chunk); err != nil {
			return sent, err
		}
		sent += len(chunk)
		data = data[len(chunk):]
	}
	return sent, nil
}

// copyChunks is io.Copy in chunks of up to maxChunk bytes.
func copyChunks(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, maxChunk))
}

// checksum counts and sums what goes through a stream of data; both ends keep one
// and compare, since a stream that was cut must not look complete.
type checksum struct {
	bytes uint64
	crc   uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c *checksum) add(data []byte) {
	c.bytes += uint64(len(data))
	c.crc = crc32.Update(c.crc, castagnoli, data)
}

func (c *checksum) trailer() *driverpb.Trailer {
	return &driverpb.Trailer{Bytes: c.bytes, Crc32C: c.crc}
}

func (c *checksum) verify(trailer *driverpb.Trailer) error {
	if trailer.GetBytes() != c.bytes || trailer.GetCrc32C() != c.crc {
		return fmt.Errorf("the data was damaged on its way: %d of %d bytes arrived, checksum %08x instead of %08x",
			c.bytes, trailer.GetBytes(), c.crc, trailer.GetCrc32C())
	}
	return nil
}

// chunkWriter is the sending end of a stream of data.
type chunkWriter struct {
	checksum
	send func([]byte) error
}

func (w *chunkWriter) Write(data []byte) (int, error) {
	sent, err := writeChunks(data, w.send)
	w.add(data[:sent])
	return sent, err
}

// ReadFrom is for io.Copy; see execWriter.ReadFrom.
func (w *chunkWriter) ReadFrom(r io.Reader) (int64, error) {
	return copyChunks(w, r)
}

// errNoTrailer is a stream of data that ended before it was complete.
var errNoTrailer = errors.New("the stream ended before its trailer")

// dataMessage is one message of a stream of data.
type dataMessage interface {
	GetData() []byte
	GetTrailer() *driverpb.Trailer
}

// chunkReader is the receiving end of a stream of data. It ends with io.EOF only
// after a trailer that agrees with what came.
type chunkReader[M dataMessage] struct {
	checksum
	recv  func() (M, error)
	chunk []byte
	end   error
}

func (r *chunkReader[M]) Read(buffer []byte) (int, error) {
	for len(r.chunk) == 0 && r.end == nil {
		r.next()
	}
	if len(r.chunk) == 0 {
		return 0, r.end
	}
	n := copy(buffer, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// WriteTo spares io.Copy its buffer.
func (r *chunkReader[M]) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for {
		for len(r.chunk) > 0 {
			n, err := w.Write(r.chunk)
			written += int64(n)
			r.chunk = r.chunk[n:]
			if err != nil {
				return written, err
			}
		}
		if errors.Is(r.end, io.EOF) {
			return written, nil
		}
		if r.end != nil {
			return written, r.end
		}
		r.next()
	}
}

func (r *chunkReader[M]) next() {
	message, err := r.recv()
	switch {
	case errors.Is(err, io.EOF):
		r.end = errNoTrailer
	case err != nil:
		r.end = err
	default:
		r.chunk = message.GetData()
		r.add(r.chunk)
		if trailer := message.GetTrailer(); trailer != nil {
			r.end = io.EOF
			if err := r.verify(trailer); err != nil {
				r.end = err
			}
		}
	}
}
