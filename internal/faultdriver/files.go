package faultdriver

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandboxctl/sandboxctl/plugin"
	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// inside is where a path of the guest's is on this machine.
func (s *service) inside(k kept, path []byte) string {
	return filepath.Join(s.store.root(k.sandbox.GetId()), filepath.Join("/", string(path)))
}

func pathError(path []byte, err error) error {
	reason := plugin.PathOther
	if errors.Is(err, fs.ErrNotExist) {
		reason = plugin.PathMissing
	}
	return fail(plugin.KindPath, string(path)+": "+err.Error(), "path", `"`+string(path)+`"`, "path_reason", string(reason))
}

func (s *service) Stat(_ context.Context, request *driverpb.StatRequest) (*driverpb.StatResponse, error) {
	k, err := s.find(request.GetRef())
	if err != nil {
		return nil, err
	}
	look := os.Lstat
	if request.GetFollow() {
		look = os.Stat
	}
	info, err := look(s.inside(k, request.GetPath()))
	if err != nil {
		return nil, pathError(request.GetPath(), err)
	}
	return &driverpb.StatResponse{Info: fileInfo(info)}, nil
}

func fileInfo(info fs.FileInfo) *driverpb.FileInfo {
	kind := driverpb.FileKind_FILE_KIND_OTHER
	switch {
	case info.Mode().IsRegular():
		kind = driverpb.FileKind_FILE_KIND_REGULAR
	case info.IsDir():
		kind = driverpb.FileKind_FILE_KIND_DIRECTORY
	case info.Mode()&fs.ModeSymlink != 0:
		kind = driverpb.FileKind_FILE_KIND_SYMLINK
	}
	return &driverpb.FileInfo{
		Name: []byte(info.Name()), Kind: kind, Size: uint64(info.Size()), Mode: uint32(info.Mode().Perm()), ModifyTime: timestamppb.New(info.ModTime()),
	}
}

func (s *service) ReadDir(request *driverpb.ReadDirRequest, stream grpc.ServerStreamingServer[driverpb.ReadDirResponse]) error {
	k, err := s.find(request.GetRef())
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.inside(k, request.GetPath()))
	if err != nil {
		return pathError(request.GetPath(), err)
	}
	answer := &driverpb.ReadDirResponse{}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil { // it may be gone meanwhile
			answer.Entries = append(answer.Entries, fileInfo(info))
		}
	}
	forged := map[Fault][]string{
		HostileText:     {hostile("name")},
		ImpossibleNames: {"../up", "/absolute", "", ".", "a\x00b"},
	}
	for _, name := range forged[k.fault] {
		answer.Entries = append(answer.Entries, &driverpb.FileInfo{Name: []byte(name), Kind: driverpb.FileKind_FILE_KIND_REGULAR})
	}
	return stream.Send(answer)
}

func (s *service) ReadFile(request *driverpb.ReadFileRequest, stream grpc.ServerStreamingServer[driverpb.ReadFileResponse]) error {
	k, err := s.find(request.GetRef())
	if err != nil {
		return err
	}
	if err := s.gates.pass(stream.Context(), StepRead); err != nil {
		return err
	}
	content, err := os.ReadFile(s.inside(k, request.GetPath()))
	if err != nil {
		return pathError(request.GetPath(), err)
	}
	sum := &driverpb.Trailer{Bytes: uint64(len(content)), Crc32C: crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))}
	if k.fault == ReadCorrupt && len(content) > 0 {
		content[0] ^= 1
	}
	if k.fault == ReadFails || k.fault == ReadCut {
		content = content[:len(content)/2]
	}
	for _, chunk := range chunks(content) {
		if err := stream.Send(&driverpb.ReadFileResponse{Data: chunk}); err != nil {
			return err
		}
	}
	switch k.fault {
	case ReadFails:
		return fail(plugin.KindUnavailable, `{"error":"the storage is down"}`)
	case ReadCut:
		return nil
	}
	return stream.Send(&driverpb.ReadFileResponse{Control: &driverpb.ReadFileResponse_Trailer{Trailer: sum}})
}

// chunks cuts data into what one message may hold.
func chunks(data []byte) [][]byte {
	const most = 256 << 10
	all := [][]byte{}
	for len(data) > 0 {
		n := min(most, len(data))
		all, data = append(all, data[:n]), data[n:]
	}
	return all
}

func (s *service) WriteFile(stream grpc.ClientStreamingServer[driverpb.WriteFileRequest, driverpb.WriteFileResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	k, err := s.find(first.GetHeader().GetRef())
	if err != nil {
		return err
	}
	if err := s.gates.pass(stream.Context(), StepWrite); err != nil {
		return err
	}
	path := first.GetHeader().GetPath()
	if k.fault == WriteFails {
		return fail(plugin.KindPath, string(path)+": no space left on device", "path", `"`+string(path)+`"`, "path_reason", string(plugin.PathNoSpace))
	}
	var content bytes.Buffer
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fail(plugin.KindInternal, "the upload has no trailer")
		}
		if err != nil {
			return err
		}
		content.Write(message.GetData())
		if message.GetTrailer() != nil {
			break
		}
	}
	target := s.inside(k, path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return pathError(path, err)
	}
	if err := os.WriteFile(target, content.Bytes(), 0o644); err != nil {
		return pathError(path, err)
	}
	return stream.SendAndClose(&driverpb.WriteFileResponse{})
}
