package images

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// layer is one of an image's layers, the lowest first.
type layer struct {
	// open returns the layer as it is stored, compressed or not.
	open func(ctx context.Context) (io.ReadCloser, error)
	// size is of what open returns.
	size int64
	// diffID is the digest of what comes out of it uncompressed.
	diffID v1.Hash
}

// apply puts the layer on top of a tree. read is told how many bytes of it were read.
func (l *layer) apply(ctx context.Context, onto *tree, read func(n int)) error {
	source := &sourceReader{ctx: ctx, open: l.open, read: read, patience: stallLimit, pause: retryPause}
	if err := source.begin(); err != nil {
		return &sourceError{err}
	}
	defer source.close()
	plain, err := decompress(source)
	if err != nil {
		return source.prefer(err)
	}
	defer plain.Close()
	sum := sha256.New()
	checked := io.TeeReader(&limitedReader{from: plain, left: mostBytes}, sum)
	if err := onto.apply(ctx, checked); err != nil {
		return source.prefer(err)
	}
	// What follows a tar archive's end belongs to the digest.
	if _, err := io.Copy(io.Discard, checked); err != nil {
		return source.prefer(err)
	}
	if l.diffID.Algorithm != "sha256" || hex.EncodeToString(sum.Sum(nil)) != l.diffID.Hex {
		return errors.New("its content is not what its digest says")
	}
	return nil
}

// limitedReader fails where a layer turns out to be endless.
type limitedReader struct {
	from io.Reader
	left int64
}

func (r *limitedReader) Read(data []byte) (int, error) {
	n, err := r.from.Read(data)
	if r.left -= int64(n); r.left < 0 {
		return 0, fmt.Errorf("it has more than %d GiB uncompressed", mostBytes>>30)
	}
	return n, err
}

// mostWindow bounds what a zstd layer can make the driver allocate, in bytes.
const mostWindow = 128 << 20

// decompress finds out how a layer is compressed from how it begins, since what media
// types say is not always true.
func decompress(stored io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(stored, 256<<10)
	begin, err := buffered.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		decoder, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	case bytes.HasPrefix(begin, []byte("BZh")), bytes.HasPrefix(begin, []byte("\xfd7zXZ")):
		return nil, errors.New("it is compressed with bzip2 or xz; images have gzip or zstd")
	}
	return io.NopCloser(buffered), nil
}
