package transfer

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"
)

type entryKind uint8

const (
	// entrySkipped carries no content (a PAX global header).
	entrySkipped entryKind = iota
	// entryImplied is a directory that was only mentioned in a longer name.
	entryImplied
	entryDir
	entryFile
	entrySymlink
	entryHardLink
)

// entry is one entry of a foreign archive after it was found harmless.
type entry struct {
	kind entryKind
	// rel is the cleaned name below the top entry; the top itself is "".
	rel   string
	mode  fs.FileMode
	mtime time.Time
	size  int64
	// link is the text of a symbolic link, or for a hard link the rel of the
	// file it repeats.
	link string
}

// tree judges the entries of a foreign archive one after the other and
// remembers their names, so that no entry can change what an earlier one meant:
// a name appears once, its parents are directories and never links. Names are
// compared as bytes. On a file system that ignores case two names of an archive
// can still meet in one file, of which the last stays; as links are made last,
// this cannot lead out of the destination.
type tree struct {
	limits Limits
	used   Limits
	// contentsOnly demands a directory as the top entry.
	contentsOnly bool
	// confineLinks refuses symbolic links that leave the tree.
	confineLinks bool
	// top is the first element of every name.
	top  string
	seen map[string]entryKind
}

func newTree(limits Limits, contentsOnly, confineLinks bool) *tree {
	return &tree{
		limits:       limits.withDefaults(),
		contentsOnly: contentsOnly,
		confineLinks: confineLinks,
		seen:         map[string]entryKind{},
	}
}

// complete is asked at the end: a sender that had nothing to say and claims
// success must not pass for an empty directory.
func (t *tree) complete() error {
	if len(t.seen) == 0 {
		return &Error{Class: ClassCorrupt, Reason: "the archive holds no entry, although what was asked for exists"}
	}
	return nil
}

// add checks one entry against the limits, the rules and all entries before it.
func (t *tree) add(hdr *tar.Header) (entry, error) {
	if err := t.spend(hdr); err != nil {
		return entry{}, err
	}
	e := entry{mode: fs.FileMode(hdr.Mode).Perm(), mtime: hdr.ModTime}
	var err error
	if e.kind, err = kindOfHeader(hdr); err != nil || e.kind == entrySkipped {
		return e, err
	}
	if e.rel, err = t.relative(hdr.Name); err != nil {
		return e, err
	}
	if strings.HasSuffix(hdr.Name, "/") && e.kind != entryDir {
		return e, refused(hdr.Name, "it ends in a slash but is not a directory")
	}
	if e.rel == "" && t.contentsOnly && e.kind != entryDir {
		return e, refused(hdr.Name, "it should be a directory and is not")
	}
	switch e.kind {
	case entryFile:
		e.size = hdr.Size
	case entrySymlink:
		e.link = hdr.Linkname
		err = t.checkSymlink(e, hdr.Name)
	case entryHardLink:
		e.link, err = t.hardLinkTarget(hdr)
	}
	if err != nil {
		return e, err
	}
	return e, t.record(e, hdr.Name)
}

func (t *tree) spend(hdr *tar.Header) error {
	t.used.Entries++
	t.used.NameBytes += int64(len(hdr.Name) + len(hdr.Linkname))
	switch {
	case t.used.Entries > t.limits.Entries:
		return limitError(LimitEntries, t.limits.Entries, hdr.Name)
	case int64(max(len(hdr.Name), len(hdr.Linkname))) > t.limits.Path:
		return limitError(LimitPath, t.limits.Path, hdr.Name)
	case t.used.NameBytes > t.limits.NameBytes:
		return limitError(LimitNames, t.limits.NameBytes, hdr.Name)
	case int64(strings.Count(strings.Trim(hdr.Name, "/"), "/")) >= t.limits.Depth:
		return limitError(LimitDepth, t.limits.Depth, hdr.Name)
	case hdr.Size > t.limits.Bytes-t.used.Bytes:
		return limitError(LimitBytes, t.limits.Bytes, hdr.Name)
	}
	t.used.Bytes += hdr.Size
	return nil
}

func kindOfHeader(hdr *tar.Header) (entryKind, error) {
	if isSparse(hdr) {
		return 0, refused(hdr.Name, "it is a sparse file, which can claim any size in a few bytes")
	}
	switch hdr.Typeflag {
	case tar.TypeReg:
		return entryFile, nil
	case tar.TypeDir:
		return entryDir, nil
	case tar.TypeSymlink:
		return entrySymlink, nil
	case tar.TypeLink:
		return entryHardLink, nil
	case tar.TypeXGlobalHeader:
		return entrySkipped, nil
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return 0, refused(hdr.Name, "it is a device or a fifo")
	default:
		return 0, refused(hdr.Name, fmt.Sprintf("it is of an unknown type (%q)", hdr.Typeflag))
	}
}

// relative checks a name and gives it without its first element, the top entry,
// which is the same for the whole archive and is renamed by the caller anyway.
func (t *tree) relative(name string) (string, error) {
	if name == "" {
		return "", refused(name, "an entry has no name")
	}
	if strings.HasPrefix(name, "/") {
		return "", refused(name, "its name is absolute")
	}
	var kept []string
	top, rest, _ := strings.Cut(name, "/")
	for element := range strings.SplitSeq(rest, "/") {
		if element == "" || element == "." {
			continue
		}
		if err := checkElement(name, element); err != nil {
			return "", err
		}
		kept = append(kept, element)
	}
	if err := checkElement(name, top); err != nil {
		return "", err
	}
	if t.top == "" {
		t.top = top
	}
	if top != t.top {
		return "", refused(name, fmt.Sprintf("it lies outside of %q, which was asked for", t.top))
	}
	return strings.Join(kept, "/"), nil
}

func checkElement(name, element string) error {
	if element == ".." {
		return refused(name, `its name contains ".."`)
	}
	if strings.IndexByte(element, 0) >= 0 {
		return refused(name, "its name contains a NUL byte")
	}
	if runtime.GOOS == "windows" && strings.ContainsAny(element, `\:`) {
		return refused(name, "its name has a meaning of its own on Windows")
	}
	return nil
}

// checkSymlink demands that a link stays within the tree that is copied. The
// target may climb first and descend then; ".." after a name is refused, since
// that name may be a link itself and ".." then leads anywhere.
func (t *tree) checkSymlink(e entry, name string) error {
	if strings.IndexByte(e.link, 0) >= 0 || e.link == "" {
		return refused(name, "it is a symbolic link to nothing")
	}
	if !t.confineLinks {
		return nil
	}
	inside := e.rel != "" && !strings.HasPrefix(e.link, "/") && !isLocalAbs(e.link)
	climb := strings.Count(e.rel, "/")
	descended := false
	for element := range strings.SplitSeq(e.link, "/") {
		switch element {
		case "", ".":
		case "..":
			climb--
			inside = inside && climb >= 0 && !descended
		default:
			descended = true
			inside = inside && checkElement(name, element) == nil
		}
	}
	if !inside {
		return refused(name, fmt.Sprintf("it is a symbolic link that may lead outside of what is copied (%q); use -L to copy what it points to", e.link))
	}
	return nil
}

func (t *tree) hardLinkTarget(hdr *tar.Header) (string, error) {
	target, err := t.relative(hdr.Linkname)
	if err != nil {
		return "", err
	}
	if t.seen[target] != entryFile {
		return "", refused(hdr.Name, fmt.Sprintf("it is a hard link to %q, which is not a file that came before it", hdr.Linkname))
	}
	return target, nil
}

// record enters e and its parents, unless one of them is something else already.
func (t *tree) record(e entry, name string) error {
	for parent, ok := parentOf(e.rel); ok; parent, ok = parentOf(parent) {
		kind, known := t.seen[parent]
		if !known {
			if err := t.imply(parent, name); err != nil {
				return err
			}
			continue
		}
		if kind != entryDir && kind != entryImplied {
			return refused(name, fmt.Sprintf("it lies below %q, which is not a directory", joinName(t.top, parent)))
		}
		break // the parents of a known directory are known to be directories
	}
	earlier, known := t.seen[e.rel]
	if known && (earlier != entryImplied || e.kind != entryDir) {
		return refused(name, "it appears more than once in the archive")
	}
	if known && e.rel != "" {
		t.used.Entries-- // it was counted when it was mentioned first
	}
	t.seen[e.rel] = e.kind
	return nil
}

// imply enters a directory that a longer name mentions. It costs an entry like any
// other, or one name of many elements would make hundreds of directories for one.
// The top is made in any case.
func (t *tree) imply(rel, name string) error {
	if rel != "" {
		t.used.Entries++
	}
	if t.used.Entries > t.limits.Entries {
		return limitError(LimitEntries, t.limits.Entries, name)
	}
	t.seen[rel] = entryImplied
	return nil
}

// parentOf gives the name above rel, and false for the top, which has none.
func parentOf(rel string) (string, bool) {
	if rel == "" {
		return "", false
	}
	return rel[:max(strings.LastIndexByte(rel, '/'), 0)], true
}

func refused(name, reason string) error {
	if name == "" {
		name = "."
	}
	return &Error{Class: ClassRefused, Path: name, Reason: "the archive was refused: " + reason}
}
