package transfer

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
)

// Passthrough copies a tar stream from r to w byte for byte and follows its
// framing meanwhile, so that a stream that is cut anywhere before the end of
// the archive, also between two entries, is an error of ClassTruncated. What
// arrived until then has been written. It serves `cp SANDBOX:PATH -` and
// `cp - SANDBOX:DIR`; progress, which may be nil, counts files' content only.
func Passthrough(ctx context.Context, w io.Writer, r io.Reader, progress Progress) (Stats, error) {
	out := bufio.NewWriterSize(w, bufferSize)
	stats, err := follow(ctx, io.TeeReader(r, out), progress)
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	return stats, err
}

// follow reads a tar stream to its end and keeps nothing of it.
func follow(ctx context.Context, r io.Reader, progress Progress) (Stats, error) {
	var stats Stats
	in := newArchive(ctx, r)
	c := copier{ctx: ctx, progress: progress}
	for {
		hdr, err := in.next()
		if errors.Is(err, io.EOF) {
			return stats, nil
		}
		if err != nil {
			return stats, err
		}
		stats.count(hdr)
		if hdr.Typeflag != tar.TypeReg || isSparse(hdr) {
			continue // next skips what a sparse entry really holds, not what it claims
		}
		if _, err := c.copy(io.Discard, in); err != nil {
			return stats, in.explain(err)
		}
	}
}

// RebaseOptions bound a copy between sandboxes.
type RebaseOptions struct {
	// Limits that are zero are DefaultLimits.
	Limits Limits
	// Progress may be nil.
	Progress Progress
}

// Rebase copies a driver's archive from r to w and gives its top entry another
// name, Target.Name; with an empty name the top entry must be a directory and
// only its contents are passed on. It checks entries as Unpack does, except for
// where symbolic links point: those stay in a sandbox. Owners, extended
// attributes and setuid bits are dropped as in Pack, and what was said there
// about errors holds here.
func Rebase(ctx context.Context, w io.Writer, r io.Reader, name string, opts RebaseOptions) (Stats, error) {
	var stats Stats
	out := bufio.NewWriterSize(w, bufferSize)
	tw := tar.NewWriter(out)
	in := newArchive(ctx, r)
	tree := newTree(opts.Limits, name == "", false)
	c := copier{ctx: ctx, progress: opts.Progress}
	for {
		hdr, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return stats, err
		}
		e, err := tree.add(hdr)
		if err != nil {
			return stats, err
		}
		if e.kind == entrySkipped || name == "" && e.rel == "" {
			continue
		}
		if err := tw.WriteHeader(e.header(name)); err != nil {
			return stats, err
		}
		stats.count(hdr)
		if e.kind == entryFile {
			if _, err := c.copy(tw, in); err != nil {
				return stats, in.explain(err)
			}
		}
	}
	if err := tree.complete(); err != nil {
		return stats, err
	}
	if err := tw.Close(); err != nil {
		return stats, err
	}
	return stats, out.Flush()
}

func (s *Stats) count(hdr *tar.Header) {
	switch hdr.Typeflag {
	case tar.TypeReg:
		s.Files++
		s.Bytes += hdr.Size
	case tar.TypeDir:
		s.Dirs++
	case tar.TypeSymlink, tar.TypeLink:
		s.Links++
	}
}

// header is the entry as it is passed on, with base for the top's name.
func (e entry) header(base string) *tar.Header {
	hdr := &tar.Header{
		Format:  tar.FormatGNU,
		Name:    joinName(base, e.rel),
		Mode:    int64(e.mode),
		ModTime: e.mtime,
	}
	switch e.kind {
	case entryDir:
		hdr.Typeflag = tar.TypeDir
		hdr.Name += "/"
	case entryFile:
		hdr.Typeflag = tar.TypeReg
		hdr.Size = e.size
	case entrySymlink:
		hdr.Typeflag = tar.TypeSymlink
		hdr.Linkname = e.link
	case entryHardLink:
		hdr.Typeflag = tar.TypeLink
		hdr.Linkname = joinName(base, e.link)
	}
	return hdr
}

func joinName(base, rel string) string {
	if base == "" || rel == "" {
		return base + rel
	}
	return base + "/" + rel
}
