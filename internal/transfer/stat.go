package transfer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kind is what a path names.
type Kind int

const (
	// KindMissing is nothing at all.
	KindMissing Kind = iota
	// KindFile is a regular file.
	KindFile
	// KindDir is a directory.
	KindDir
	// KindSymlink is a symbolic link that was not followed.
	KindSymlink
	// KindOther is a device, a fifo or a socket.
	KindOther
)

// Info is what a Stater knows of one path.
type Info struct {
	Kind Kind
	// Mode holds the permission bits only.
	Mode    fs.FileMode
	Size    int64
	ModTime time.Time
	// LinkTarget is the text of a symbolic link that was not followed.
	LinkTarget string
}

// Stater looks at paths on one side of a copy. The command line implements it
// over a driver's Stat; Local implements it for this machine.
type Stater interface {
	// Stat describes the entry at path, following a symbolic link at path
	// itself only when follow is set. A path that does not exist, which
	// includes a path below a file, is an error that satisfies
	// errors.Is(err, fs.ErrNotExist).
	Stat(ctx context.Context, path string, follow bool) (Info, error)
}

// Local is the Stater of this machine.
type Local struct{}

// Stat implements Stater. ctx is not consulted: a local stat cannot be interrupted.
func (Local) Stat(_ context.Context, path string, follow bool) (Info, error) {
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	fi, err := stat(path)
	if err != nil {
		if isNotDir(err) {
			err = fs.ErrNotExist
		}
		return Info{}, localError(path, "cannot look at it", err)
	}
	info := Info{Kind: kindOf(fi.Mode()), Mode: fi.Mode().Perm(), Size: fi.Size(), ModTime: fi.ModTime()}
	if info.Kind == KindSymlink {
		target, err := os.Readlink(path)
		if err != nil {
			return Info{}, localError(path, "cannot read the link", err)
		}
		info.LinkTarget = filepath.ToSlash(target)
	}
	return info, nil
}

// Endpoint is one side of a copy after it was looked at: the input of Plan.
type Endpoint struct {
	// Arg is the argument. In a destination, symbolic links at the end of the
	// path are already replaced by what they name. When both sides are in
	// sandboxes, Arg.Sandbox should be an id on both, so that Plan can tell
	// whether they are the same sandbox.
	Arg
	// Info describes what is there; Info.Kind is KindMissing for a destination
	// that does not exist yet.
	Info Info
	// ParentMissing is set for a missing destination whose directory is
	// missing too.
	ParentMissing bool
}

// StatSource looks at the source of a copy. A symbolic link at the path itself
// stays a link unless follow (-L) is set or the path ends in "/" or "/.".
func StatSource(ctx context.Context, s Stater, arg Arg, follow bool) (Endpoint, error) {
	if arg.Side == SideStream {
		return Endpoint{Arg: arg}, nil
	}
	info, err := s.Stat(ctx, arg.Bare(), follow || arg.FollowsLink())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Endpoint{}, pathError(arg, "no such file or directory")
	case err != nil:
		return Endpoint{}, err
	}
	return Endpoint{Arg: arg, Info: info}, nil
}

// maxLinks is the number of links Linux follows before it answers ELOOP.
const maxLinks = 40

// StatDest looks at the destination of a copy. Links at the end of the path are
// followed, also dangling ones, as docker cp does: the user named the link and
// means what is behind it. What a copy then writes is confined to that place.
func StatDest(ctx context.Context, s Stater, arg Arg) (Endpoint, error) {
	if arg.Side == SideStream {
		return Endpoint{Arg: arg}, nil
	}
	end := Endpoint{Arg: arg}
	for range maxLinks {
		path := trimMarker(end.Path)
		info, err := s.Stat(ctx, path, false)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return missingDest(ctx, s, end)
		case err != nil:
			return Endpoint{}, err
		case info.Kind != KindSymlink:
			end.Info = info
			return end, nil
		}
		end.Path = followLink(path, info.LinkTarget) + marker(end.Path)
	}
	return Endpoint{}, pathError(arg, "too many levels of symbolic links")
}

func missingDest(ctx context.Context, s Stater, end Endpoint) (Endpoint, error) {
	dir, _ := splitPath(end.Path)
	parent, err := s.Stat(ctx, dir, true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Endpoint{}, err
	}
	end.ParentMissing = err != nil || parent.Kind != KindDir
	return end, nil
}

// followLink does not clean the result: "x/.." is not "." when x is a link.
func followLink(link, target string) string {
	if strings.HasPrefix(target, "/") || isLocalAbs(target) {
		return target
	}
	dir, _ := splitPath(link)
	if strings.HasSuffix(dir, "/") {
		return dir + target
	}
	return dir + "/" + target
}

func kindOf(mode fs.FileMode) Kind {
	switch {
	case mode.IsRegular():
		return KindFile
	case mode.IsDir():
		return KindDir
	case mode&fs.ModeSymlink != 0:
		return KindSymlink
	default:
		return KindOther
	}
}

func pathError(arg Arg, reason string) error {
	return &Error{Class: ClassPath, Path: arg.String(), Reason: reason}
}
