package transfer

import (
	"path"
	"strings"
)

// Target is where a copy lands.
type Target struct {
	// Dir is the existing directory that the archive is extracted into.
	Dir string
	// Name is the name in Dir that the source gets. Empty means that the
	// source is a directory whose contents go into Dir itself, or a stream
	// whose entries keep their names.
	Name string
}

// Plan applies docker cp's table to a source and a destination:
//
//	source     destination          result
//	file       missing              the file gets that name
//	file       missing, ends in /   error: the directory must exist
//	file       file                 replaced
//	file       file, ends in /      error: not a directory
//	file       directory            a file in the directory
//	directory  missing              a new directory with the source's contents
//	directory  file                 error
//	directory  directory            a directory in the directory
//	dir/.      directory            the contents, into the directory
//	stream     directory            the entries, into the directory
//
// The directory of a missing destination must exist. A source that ends in "/"
// must be a directory. A link that was not followed counts as a file. A source
// that has no name of its own (/, . and ..) is copied as if it ended in "/.".
// The table is the same for every direction. Errors are of ClassPath.
func Plan(src, dst Endpoint) (Target, error) {
	if src.Side != SideStream {
		if err := checkSource(src); err != nil {
			return Target{}, err
		}
	}
	if dst.Side == SideStream {
		return Target{}, nil
	}
	if dst.Info.Kind == KindOther || dst.Info.Kind == KindSymlink {
		return Target{}, pathError(dst.Arg, "the destination is neither a regular file nor a directory")
	}
	if dst.Info.Kind == KindFile && assertsDir(dst.Path) {
		return Target{}, pathError(dst.Arg, "not a directory")
	}
	switch {
	case src.Side == SideStream:
		return planStream(dst)
	case src.Info.Kind == KindDir:
		return planDir(src, dst)
	default:
		return planFile(src, dst)
	}
}

func checkSource(src Endpoint) error {
	switch {
	case src.Info.Kind == KindMissing:
		return pathError(src.Arg, "no such file or directory")
	case src.Info.Kind == KindOther:
		return pathError(src.Arg, "only files, directories and symbolic links can be copied, this is a device, a fifo or a socket")
	case src.Info.Kind != KindDir && assertsDir(src.Path):
		return pathError(src.Arg, "not a directory")
	}
	return nil
}

func planStream(dst Endpoint) (Target, error) {
	if dst.Info.Kind != KindDir {
		return Target{}, pathError(dst.Arg, "a tar stream needs an existing directory as its destination")
	}
	return Target{Dir: dst.Bare()}, nil
}

func planFile(src, dst Endpoint) (Target, error) {
	switch {
	case dst.Info.Kind == KindDir:
		_, name := splitPath(src.Path)
		return Target{Dir: dst.Bare(), Name: name}, nil
	case dst.Info.Kind == KindMissing && assertsDir(dst.Path):
		return Target{}, pathError(dst.Arg, "the destination directory must exist; create it, or leave out the trailing slash to name the file")
	default:
		return planNamed(dst)
	}
}

func planDir(src, dst Endpoint) (Target, error) {
	if src.Side == dst.Side && src.Sandbox == dst.Sandbox && isWithin(dst.Path, src.Path) {
		return Target{}, pathError(src.Arg, "a directory cannot be copied into itself")
	}
	switch dst.Info.Kind {
	case KindFile:
		return Target{}, pathError(dst.Arg, "a directory cannot be copied onto a file")
	case KindMissing:
		return planNamed(dst)
	}
	_, name := splitPath(src.Path)
	if name == "" || strings.HasSuffix(strings.TrimRight(src.Path, "/"), "/.") {
		return Target{Dir: dst.Bare()}, nil
	}
	return Target{Dir: dst.Bare(), Name: name}, nil
}

// planNamed is for a destination that gives the copy its name.
func planNamed(dst Endpoint) (Target, error) {
	if dst.ParentMissing {
		return Target{}, pathError(dst.Arg, "the directory that should hold the copy does not exist; create it first")
	}
	dir, name := splitPath(dst.Path)
	if name == "" {
		return Target{}, pathError(dst.Arg, "no such directory")
	}
	return Target{Dir: dir, Name: name}, nil
}

// isWithin is lexical: it catches the mistake, not an alias made with links.
func isWithin(inner, outer string) bool {
	inner, outer = path.Clean(inner), path.Clean(outer)
	return inner == outer || outer == "/" || strings.HasPrefix(inner, outer+"/")
}

// assertsDir reports a path that says of itself that it is a directory.
func assertsDir(p string) bool {
	return marker(p) != "" || p == "." || p == ".." || strings.HasSuffix(p, "/..")
}

// marker gives the "/" or "/." at the end of p, with the slashes before it.
func marker(p string) string { return p[len(trimMarker(p)):] }

// trimMarker takes "/" and "/." off the end of p, but leaves a root ("/", "C:/").
func trimMarker(p string) string {
	for {
		switch {
		case isRoot(p):
			return p
		case strings.HasSuffix(p, "/"):
			p = p[:len(p)-1]
		case strings.HasSuffix(p, "/."):
			p = p[:len(p)-1]
		default:
			return p
		}
	}
}

// isRoot knows "/" and, as local paths are written with slashes, "C:/". A
// sandbox path that looks like "c:/" loses nothing by it.
func isRoot(p string) bool { return p == "/" || len(p) == 3 && p[1:] == ":/" }

// splitPath gives the directory of p, which is never empty, and its last
// element, which is empty when p has no name of its own (/, . and ..). The
// directory is not cleaned: "x/.." is not "." when x is a link.
func splitPath(p string) (dir, name string) {
	p = trimMarker(p)
	if isRoot(p) || p == "." || p == ".." || strings.HasSuffix(p, "/..") {
		return p, ""
	}
	slash := strings.LastIndexByte(p, '/')
	if slash < 0 {
		return ".", p
	}
	return trimMarker(p[:slash+1]), p[slash+1:]
}
