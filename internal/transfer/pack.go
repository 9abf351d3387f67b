package transfer

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// PackOptions say how a local source becomes a tar stream.
type PackOptions struct {
	// Name is the name of the top entry, Target.Name. Empty packs the contents
	// of a directory without an entry for the directory itself.
	Name string
	// FollowLinks (-L) archives what symbolic links name in place of the links.
	FollowLinks bool
	// Progress may be nil.
	Progress Progress
}

// Pack writes a tar stream of the file or directory src to w. Everything below
// src is included: hidden files, .git, empty directories. A symbolic link stays
// one, except src itself when it ends in "/" or "/."; with FollowLinks all are
// followed, and a dangling link or a loop is an error. Files with several hard
// links arrive as separate files. Devices, fifos and sockets inside src are left
// out and listed in Stats.Skipped; as src itself they are an error.
//
// The archive is in GNU format: it carries names of any length and any bytes
// and sizes above 8 GiB, and BusyBox, which drops the long names of PAX, reads
// it. Its times are whole seconds.
//
// A file that changes its size while it is read is an error of ClassChanged.
// After any error w has got an archive without its end, and the caller must
// pass the error on to the reader.
func Pack(ctx context.Context, w io.Writer, src string, opts PackOptions) (Stats, error) {
	out := bufio.NewWriterSize(w, bufferSize)
	p := packer{
		tw:          tar.NewWriter(out),
		copier:      copier{ctx: ctx, progress: opts.Progress},
		followLinks: opts.FollowLinks,
	}
	if err := p.packTop(src, opts.Name); err != nil {
		return p.stats, err
	}
	if err := p.tw.Close(); err != nil {
		return p.stats, err
	}
	return p.stats, out.Flush()
}

type packer struct {
	tw          *tar.Writer
	copier      copier
	followLinks bool
	stats       Stats
	// ancestors are the directories above the current entry. A directory that
	// is its own ancestor was reached through a link.
	ancestors []fs.FileInfo
}

func (p *packer) packTop(src, name string) error {
	local := trimMarker(filepath.ToSlash(src))
	fi, err := p.stat(local, p.followLinks || assertsDir(filepath.ToSlash(src)))
	if err != nil {
		return err
	}
	if name == "" && !fi.IsDir() {
		return &Error{Class: ClassPath, Path: src, Reason: "not a directory"}
	}
	if kindOf(fi.Mode()) == KindOther {
		return &Error{Class: ClassPath, Path: src, Reason: "only files, directories and symbolic links can be copied, this is a device, a fifo or a socket"}
	}
	return p.pack(local, name, fi)
}

func (p *packer) stat(local string, follow bool) (fs.FileInfo, error) {
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	fi, err := stat(local)
	if err != nil {
		return nil, localError(local, "cannot look at it", err)
	}
	return fi, nil
}

func (p *packer) pack(local, name string, fi fs.FileInfo) error {
	if p.copier.ctx.Err() != nil {
		return context.Cause(p.copier.ctx)
	}
	switch kindOf(fi.Mode()) {
	case KindDir:
		return p.packDir(local, name, fi)
	case KindFile:
		return p.packFile(local, name, fi)
	case KindSymlink:
		return p.packSymlink(local, name, fi)
	default:
		p.stats.Skipped = append(p.stats.Skipped,
			fmt.Sprintf("%q was left out: it is a device, a fifo or a socket", local))
		return nil
	}
}

func (p *packer) packDir(local, name string, fi fs.FileInfo) error {
	for _, above := range p.ancestors {
		if p.followLinks && os.SameFile(above, fi) {
			return &Error{Class: ClassPath, Path: local, Reason: "a symbolic link leads back to a directory above it, so following links never ends; leave out -L"}
		}
	}
	p.ancestors = append(p.ancestors, fi)
	defer func() { p.ancestors = p.ancestors[:len(p.ancestors)-1] }()

	if name != "" {
		if err := p.writeHeader(fi, tar.Header{Typeflag: tar.TypeDir, Name: name + "/"}); err != nil {
			return err
		}
		p.stats.Dirs++
		name += "/"
	}
	entries, err := os.ReadDir(local)
	if err != nil {
		return localError(local, "cannot list the directory", err)
	}
	for _, entry := range entries {
		child := filepath.Join(local, entry.Name())
		fi, err := p.stat(child, p.followLinks)
		if err != nil {
			return err
		}
		if err := p.pack(child, name+entry.Name(), fi); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) packSymlink(local, name string, fi fs.FileInfo) error {
	target, err := os.Readlink(local)
	if err != nil {
		return localError(local, "cannot read the link", err)
	}
	p.stats.Links++
	return p.writeHeader(fi, tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: filepath.ToSlash(target)})
}

func (p *packer) packFile(local, name string, fi fs.FileInfo) error {
	f, err := os.Open(local)
	if err != nil {
		return localError(local, "cannot open the file", err)
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return localError(local, "cannot look at it", err)
	}
	if !os.SameFile(fi, opened) {
		return changed(local, "it was replaced while it was read")
	}
	size := opened.Size()
	if err := p.writeHeader(opened, tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}); err != nil {
		return err
	}
	if err := p.packContent(local, f, size); err != nil {
		return err
	}
	p.stats.Files++
	p.stats.Bytes += size
	return nil
}

// packContent sends exactly the size that the header promised. A tar entry
// cannot be taken back, so a different size can only end the stream.
func (p *packer) packContent(local string, f *os.File, size int64) error {
	n, err := p.copier.copy(p.tw, io.LimitReader(fileReader{f}, size))
	if err != nil {
		return err
	}
	if n < size {
		return changed(local, fmt.Sprintf("it shrank from %d to %d bytes while it was read", size, n))
	}
	if n, _ := f.Read(make([]byte, 1)); n > 0 {
		return changed(local, fmt.Sprintf("it grew beyond %d bytes while it was read", size))
	}
	return nil
}

// fileReader marks a failed read, which is the source's fault and not the
// stream's.
type fileReader struct{ f *os.File }

func (r fileReader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = localError(r.f.Name(), "cannot read the file", err)
	}
	return n, err
}

// writeHeader completes a header with what may leave this machine: permission
// bits and the time, and no owner.
func (p *packer) writeHeader(fi fs.FileInfo, hdr tar.Header) error {
	hdr.Format = tar.FormatGNU
	hdr.Mode = int64(fi.Mode().Perm())
	hdr.ModTime = fi.ModTime()
	return p.tw.WriteHeader(&hdr)
}

func changed(local, reason string) error {
	return &Error{Class: ClassChanged, Path: local, Reason: reason + "; try again when nothing writes to it"}
}
