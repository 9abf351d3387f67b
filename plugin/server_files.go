package plugin

import (
	"context"
	"io"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// defaultFileMode is a new file's mode when the host names none.
const defaultFileMode = 0o644

func (s *server) files(call string) (FileSystem, error) {
	if files, ok := s.driver.(FileSystem); ok {
		return files, nil
	}
	return nil, s.unsupported(call)
}

func (s *server) archives(call string) (Archiver, error) {
	if archiver, ok := s.driver.(Archiver); ok {
		return archiver, nil
	}
	return nil, s.unsupported(call)
}

func (s *server) Stat(ctx context.Context, request *driverpb.StatRequest) (*driverpb.StatResponse, error) {
	files, err := s.files("stat")
	if err != nil {
		return nil, err
	}
	info, err := files.Stat(ctx, refFromWire(request.GetRef()), string(request.GetPath()), request.GetFollow())
	if err != nil {
		return nil, err
	}
	return &driverpb.StatResponse{Info: fileToWire(info)}, nil
}

func (s *server) ReadDir(request *driverpb.ReadDirRequest, stream grpc.ServerStreamingServer[driverpb.ReadDirResponse]) error {
	files, err := s.files("list a directory")
	if err != nil {
		return err
	}
	entries, err := files.ReadDir(stream.Context(), refFromWire(request.GetRef()), string(request.GetPath()))
	if err != nil {
		return err
	}
	const batch = 500
	for len(entries) > 0 {
		now := entries[:min(batch, len(entries))]
		entries = entries[len(now):]
		answer := &driverpb.ReadDirResponse{}
		for _, entry := range now {
			answer.Entries = append(answer.Entries, fileToWire(entry))
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) ReadFile(request *driverpb.ReadFileRequest, stream grpc.ServerStreamingServer[driverpb.ReadFileResponse]) error {
	files, err := s.files("read files")
	if err != nil {
		return err
	}
	output := &chunkWriter{send: func(chunk []byte) error { return stream.Send(&driverpb.ReadFileResponse{Data: chunk}) }}
	err = files.ReadFile(stream.Context(), refFromWire(request.GetRef()), string(request.GetPath()), int64(request.GetMaxBytes()), output)
	if err != nil {
		return err
	}
	return stream.Send(&driverpb.ReadFileResponse{Control: &driverpb.ReadFileResponse_Trailer{Trailer: output.trailer()}})
}

func (s *server) WriteFile(stream grpc.ClientStreamingServer[driverpb.WriteFileRequest, driverpb.WriteFileResponse]) error {
	files, err := s.files("write files")
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return Errorf(KindInvalid, "the first message of a write names no file")
	}
	mode := header.GetMode()
	if mode == 0 {
		mode = defaultFileMode
	}
	content := &chunkReader[*driverpb.WriteFileRequest]{recv: stream.Recv}
	err = files.WriteFile(stream.Context(), refFromWire(header.GetRef()), string(header.GetPath()), mode, content)
	if err := received(content.end, err); err != nil {
		return err
	}
	return stream.SendAndClose(&driverpb.WriteFileResponse{})
}

func (s *server) GetArchive(request *driverpb.GetArchiveRequest, stream grpc.ServerStreamingServer[driverpb.GetArchiveResponse]) error {
	archives, err := s.archives("copy directories")
	if err != nil {
		return err
	}
	output := &chunkWriter{send: func(chunk []byte) error { return stream.Send(&driverpb.GetArchiveResponse{Data: chunk}) }}
	err = archives.GetArchive(stream.Context(), refFromWire(request.GetRef()), string(request.GetPath()), request.GetFollow(), output)
	if err != nil {
		return err
	}
	return stream.Send(&driverpb.GetArchiveResponse{Control: &driverpb.GetArchiveResponse_Trailer{Trailer: output.trailer()}})
}

func (s *server) PutArchive(stream grpc.ClientStreamingServer[driverpb.PutArchiveRequest, driverpb.PutArchiveResponse]) error {
	archives, err := s.archives("copy directories")
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return Errorf(KindInvalid, "the first message of an archive names no directory")
	}
	content := &chunkReader[*driverpb.PutArchiveRequest]{recv: stream.Recv}
	err = archives.PutArchive(stream.Context(), refFromWire(header.GetRef()), string(header.GetDir()), content)
	if err == nil {
		// A tar reader stops at the archive's end and may leave padding unread.
		_, err = io.Copy(io.Discard, content)
	}
	if err := received(content.end, err); err != nil {
		return err
	}
	return stream.SendAndClose(&driverpb.PutArchiveResponse{})
}

// received is the outcome of an upload: the driver's own error, or that the content
// did not arrive whole though the driver was content with it.
func received(end, err error) error {
	if err == nil && end != io.EOF {
		return Errorf(KindInternal, "the upload did not arrive whole: %w", end)
	}
	return err
}
