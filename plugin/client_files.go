package plugin

import (
	"context"
	"errors"
	"io"
	"strings"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// Stat describes a path; see FileSystem.
func (c *Client) Stat(ctx context.Context, ref Ref, path string, follow bool) (FileInfo, error) {
	answer, err := c.rpc.Stat(ctx, &driverpb.StatRequest{Ref: refToWire(ref), Path: []byte(path), Follow: follow})
	if err != nil {
		return FileInfo{}, fromStatus(ctx, "stat", err)
	}
	return fileFromWire(answer.GetInfo()), nil
}

// ReadDir lists a directory; see FileSystem.
func (c *Client) ReadDir(ctx context.Context, ref Ref, path string) ([]FileInfo, error) {
	const call = "list a directory"
	stream, err := c.rpc.ReadDir(ctx, &driverpb.ReadDirRequest{Ref: refToWire(ref), Path: []byte(path)})
	if err != nil {
		return nil, fromStatus(ctx, call, err)
	}
	entries := []FileInfo{}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, fromStatus(ctx, call, err)
		}
		for _, entry := range answer.GetEntries() {
			info := fileFromWire(entry)
			if !isBaseName(info.Name) {
				return nil, Errorf(KindInternal, "the driver listed an entry %q, which no directory can have", cut(info.Name))
			}
			entries = append(entries, info)
		}
	}
}

// isBaseName guards callers that join what was listed to a path.
func isBaseName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// ReadFile writes a file's content to w; see FileSystem.
func (c *Client) ReadFile(ctx context.Context, ref Ref, path string, maxBytes int64, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.ReadFile(ctx, &driverpb.ReadFileRequest{Ref: refToWire(ref), Path: []byte(path), MaxBytes: uint64(max(maxBytes, 0))})
	if err != nil {
		return fromStatus(ctx, "read a file", err)
	}
	return receiveData(ctx, "read a file", &chunkReader[*driverpb.ReadFileResponse]{recv: stream.Recv}, w)
}

// WriteFile writes a file; see FileSystem.
func (c *Client) WriteFile(ctx context.Context, ref Ref, path string, mode uint32, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.WriteFile(ctx)
	if err != nil {
		return fromStatus(ctx, "write a file", err)
	}
	upload := &upload{
		header: func() error { return stream.Send(writeHeader(ref, path, mode)) },
		data:   func(chunk []byte) error { return stream.Send(&driverpb.WriteFileRequest{Data: chunk}) },
		trailer: func(t *driverpb.Trailer) error {
			return stream.Send(&driverpb.WriteFileRequest{Control: &driverpb.WriteFileRequest_Trailer{Trailer: t}})
		},
		finish: func() error { _, err := stream.CloseAndRecv(); return err },
	}
	return upload.send(ctx, "write a file", r)
}

func writeHeader(ref Ref, path string, mode uint32) *driverpb.WriteFileRequest {
	return &driverpb.WriteFileRequest{Control: &driverpb.WriteFileRequest_Header_{
		Header: &driverpb.WriteFileRequest_Header{Ref: refToWire(ref), Path: []byte(path), Mode: mode},
	}}
}

// GetArchive writes a tar stream of what is at path to w; see Archiver.
func (c *Client) GetArchive(ctx context.Context, ref Ref, path string, follow bool, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.GetArchive(ctx, &driverpb.GetArchiveRequest{Ref: refToWire(ref), Path: []byte(path), Follow: follow})
	if err != nil {
		return fromStatus(ctx, "copy from the sandbox", err)
	}
	return receiveData(ctx, "copy from the sandbox", &chunkReader[*driverpb.GetArchiveResponse]{recv: stream.Recv}, w)
}

// PutArchive extracts a tar stream into a directory; see Archiver.
func (c *Client) PutArchive(ctx context.Context, ref Ref, dir string, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.PutArchive(ctx)
	if err != nil {
		return fromStatus(ctx, "copy into the sandbox", err)
	}
	upload := &upload{
		header: func() error {
			return stream.Send(&driverpb.PutArchiveRequest{Control: &driverpb.PutArchiveRequest_Header_{
				Header: &driverpb.PutArchiveRequest_Header{Ref: refToWire(ref), Dir: []byte(dir)},
			}})
		},
		data: func(chunk []byte) error { return stream.Send(&driverpb.PutArchiveRequest{Data: chunk}) },
		trailer: func(t *driverpb.Trailer) error {
			return stream.Send(&driverpb.PutArchiveRequest{Control: &driverpb.PutArchiveRequest_Trailer{Trailer: t}})
		},
		finish: func() error { _, err := stream.CloseAndRecv(); return err },
	}
	return upload.send(ctx, "copy into the sandbox", r)
}

// receiveData copies a stream of data to w and tells a failing w from a failing
// driver.
func receiveData[M dataMessage](ctx context.Context, call string, content *chunkReader[M], w io.Writer) error {
	_, err := content.WriteTo(w)
	switch {
	case err == nil:
		return nil
	case errors.Is(content.end, err) && errors.Is(err, errNoTrailer):
		return &ConnectionError{Call: call, Cause: err}
	case errors.Is(content.end, err):
		return fromStatus(ctx, call, err)
	}
	return err
}

// upload sends a header, a reader's data and a trailer.
type upload struct {
	header  func() error
	data    func([]byte) error
	trailer func(*driverpb.Trailer) error
	finish  func() error
}

// send returns the driver's error rather than the broken stream that it causes, and
// the reader's error, as it is, when the content itself could not be had.
func (u *upload) send(ctx context.Context, call string, r io.Reader) error {
	output := &chunkWriter{send: u.data}
	err := u.header()
	if err == nil {
		var source sourceError
		_, err = output.ReadFrom(source.watch(r))
		if source.err != nil {
			return source.err
		}
	}
	if err == nil {
		err = u.trailer(output.checksum.trailer())
	}
	// io.EOF from a send means that the driver has answered already.
	if err != nil && !errors.Is(err, io.EOF) {
		return fromStatus(ctx, call, err)
	}
	return fromStatus(ctx, call, u.finish())
}

// sourceError remembers that reading failed, as opposed to sending.
type sourceError struct{ err error }

func (s *sourceError) watch(r io.Reader) io.Reader {
	return readerFunc(func(buffer []byte) (int, error) {
		n, err := r.Read(buffer)
		if err != nil && !errors.Is(err, io.EOF) {
			s.err = err
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(buffer []byte) (int, error) { return f(buffer) }
