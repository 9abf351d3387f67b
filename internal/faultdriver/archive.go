package faultdriver

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/sandboxctl/sandboxctl/plugin"
	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

func (s *service) GetArchive(request *driverpb.GetArchiveRequest, stream grpc.ServerStreamingServer[driverpb.GetArchiveResponse]) error {
	k, err := s.find(request.GetRef())
	if err != nil {
		return err
	}
	if err := s.gates.pass(stream.Context(), StepRead); err != nil {
		return err
	}
	root := s.inside(k, request.GetPath())
	if _, err := os.Lstat(root); err != nil {
		return pathError(request.GetPath(), err)
	}
	output := &archiveStream{stream: stream}
	archive := tar.NewWriter(output)
	base := filepath.Base(root)
	if err := addTree(archive, root, base); err != nil {
		return err
	}
	if err := addHostile(archive, k.fault, base); err != nil {
		return err
	}
	if k.fault == ArchiveCut {
		return output.flush() // neither the archive's end nor the stream's trailer
	}
	if err := errors.Join(archive.Close(), output.flush()); err != nil {
		return err
	}
	return stream.Send(&driverpb.GetArchiveResponse{Control: &driverpb.GetArchiveResponse_Trailer{
		Trailer: &driverpb.Trailer{Bytes: output.bytes, Crc32C: output.checksum},
	}})
}

// archiveStream sends what is written, in messages as large as they may be.
type archiveStream struct {
	stream   grpc.ServerStreamingServer[driverpb.GetArchiveResponse]
	pending  []byte
	bytes    uint64
	checksum uint32
}

func (a *archiveStream) Write(data []byte) (int, error) {
	a.pending = append(a.pending, data...)
	a.bytes += uint64(len(data))
	a.checksum = crc32.Update(a.checksum, crc32.MakeTable(crc32.Castagnoli), data)
	if len(a.pending) < 128<<10 {
		return len(data), nil
	}
	return len(data), a.flush()
}

func (a *archiveStream) flush() error {
	for _, chunk := range chunks(a.pending) {
		if err := a.stream.Send(&driverpb.GetArchiveResponse{Data: chunk}); err != nil {
			return err
		}
	}
	a.pending = a.pending[:0]
	return nil
}

// addTree adds what is at root under the name base.
func addTree(archive *tar.Writer, root, base string) error {
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(file); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		header.Name = path.Join(base, filepath.ToSlash(file[len(root):]))
		if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
}

// addHostile adds the entries of a fault.
func addHostile(archive *tar.Writer, fault Fault, base string) error {
	file := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	link := func(name, target string, kind byte) *tar.Header {
		return &tar.Header{Name: name, Linkname: target, Typeflag: kind, Mode: 0o777}
	}
	headers := []*tar.Header{}
	switch fault {
	case ArchiveDotDot:
		headers = append(headers, file("../escaped"), file(base+"/../../escaped"))
	case ArchiveAbsolute:
		headers = append(headers, file("/tmp/sandboxctl-escaped"))
	case ArchiveThroughLink:
		headers = append(headers, link(base+"/out", "/tmp", tar.TypeSymlink), file(base+"/out/sandboxctl-escaped"))
	case ArchiveHardLink:
		headers = append(headers, link(base+"/passwd", "/etc/passwd", tar.TypeLink))
	case ArchiveDevice:
		headers = append(headers, &tar.Header{Name: base + "/device", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 5})
	case ArchiveDuplicates:
		headers = append(headers, file(base+"/twice"), link(base+"/twice", "/tmp/sandboxctl-escaped", tar.TypeSymlink), file(base+"/twice"))
	case ArchiveSetuid:
		headers = append(headers, &tar.Header{Name: base + "/setuid", Typeflag: tar.TypeReg, Mode: 0o4755})
	case ArchiveEscapes:
		headers = append(headers, file(base+"/"+hostile("name")))
	case ArchiveCut:
		headers = append(headers, &tar.Header{Name: base + "/cut", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1 << 20})
	case ArchiveMillion:
		for i := range 1_000_000 {
			if err := archive.WriteHeader(file(fmt.Sprintf("%s/entry-%d", base, i))); err != nil {
				return err
			}
		}
	}
	for _, header := range headers {
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
	}
	if fault == ArchiveCut {
		_, err := archive.Write(make([]byte, 1<<19))
		return err
	}
	return nil
}

func (s *service) PutArchive(stream grpc.ClientStreamingServer[driverpb.PutArchiveRequest, driverpb.PutArchiveResponse]) error {
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
	if k.fault == WriteFails {
		return fail(plugin.KindPath, "no space left on device", "path_reason", string(plugin.PathNoSpace))
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
	if err := extract(&content, s.inside(k, first.GetHeader().GetDir())); err != nil {
		return pathError(first.GetHeader().GetDir(), err)
	}
	return stream.SendAndClose(&driverpb.PutArchiveResponse{})
}

// extract unpacks directories, files and links into dir, and never out of it.
func extract(content io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(header.Linkname, name)
		case tar.TypeReg:
			err = extractFile(root, name, fs.FileMode(header.Mode).Perm(), archive)
		}
		if err != nil {
			return err
		}
	}
}

func extractFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
