package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// UnpackOptions bound an extraction.
type UnpackOptions struct {
	// Limits that are zero are DefaultLimits.
	Limits Limits
	// Progress may be nil.
	Progress Progress
}

// Unpack extracts a driver's archive of one file or directory into target.Dir
// and gives its top entry the name target.Name; with an empty name the top must
// be a directory, and its contents go into target.Dir. The archive is taken to
// be hostile:
//
//   - Nothing is written or changed outside of target.Dir, whatever names and
//     links the archive or the destination hold. A symbolic link in the
//     destination is never followed: as a parent it is an error, as the last
//     element it is replaced.
//   - Absolute names, "..", NUL bytes, devices, fifos, sparse files, names that
//     appear twice or below something that is not a directory, symbolic links
//     that lead out of the copied tree and hard links to anything but a file of
//     this archive are errors of ClassRefused, and the extraction stops there.
//     A symbolic link as the top entry always leads out of what is copied.
//   - Limits are enforced before the entry in question is written.
//   - Links are made last, and only once the stream is known to be complete.
//
// A file appears under its final name when it is complete, replacing an older
// one; what a failed extraction leaves are complete files, and directories,
// which then may still have mode 0700. Directories that existed keep their mode
// and time. New directories and files get the archive's permission bits exactly,
// whatever the umask, and its modification time; links get the current time.
func Unpack(ctx context.Context, r io.Reader, target Target, opts UnpackOptions) (Stats, error) {
	root, err := os.OpenRoot(target.Dir)
	if err != nil {
		return Stats{}, localError(target.Dir, "cannot open the destination directory", err)
	}
	defer root.Close()
	x := extractor{
		root:   root,
		base:   target.Name,
		in:     newArchive(ctx, r),
		tree:   newTree(opts.Limits, target.Name == "", true),
		copier: copier{ctx: ctx, progress: opts.Progress},
		dirs:   map[string]int{".": existed},
	}
	if err := x.extract(); err != nil {
		return x.stats, err
	}
	return x.stats, x.finish()
}

// existed marks a directory that was there before the extraction.
const existed = -1

type extractor struct {
	root   *os.Root
	base   string
	in     *archive
	tree   *tree
	copier copier
	stats  Stats
	// dirs are the directories known to be real ones, with their index in
	// made, or existed.
	dirs map[string]int
	// made are the directories of this extraction, parents first, which get
	// their mode and time at the end: a 0555 directory has to be filled first.
	made  []entry
	links []entry
}

func (x *extractor) extract() error {
	for {
		hdr, err := x.in.next()
		if errors.Is(err, io.EOF) {
			return x.tree.complete()
		}
		if err != nil {
			return err
		}
		e, err := x.tree.add(hdr)
		if err != nil {
			return err
		}
		switch e.kind {
		case entryDir:
			err = x.makeDir(e)
		case entryFile:
			err = x.writeFile(e)
		case entrySymlink, entryHardLink:
			x.links = append(x.links, e)
		}
		if err != nil {
			return err
		}
	}
}

// path is where an entry goes, relative to the root.
func (x *extractor) path(rel string) string {
	if p := joinName(x.base, rel); p != "" {
		return p
	}
	return "."
}

func (x *extractor) makeDir(e entry) error {
	x.stats.Dirs++
	if i, known := x.dirs[x.path(e.rel)]; known {
		if i != existed {
			x.made[i] = e // made for what is in it; now its mode and time are known
		}
		return nil
	}
	if err := x.makeParents(e.rel); err != nil {
		return err
	}
	return x.mkdir(e)
}

func (x *extractor) makeParents(rel string) error {
	parent, ok := parentOf(rel)
	if !ok {
		return nil
	}
	if _, known := x.dirs[x.path(parent)]; known {
		return nil
	}
	if err := x.makeParents(parent); err != nil {
		return err
	}
	return x.mkdir(entry{kind: entryImplied, rel: parent, mode: 0o755})
}

// mkdir makes a directory or accepts an existing one, but not a link to one.
func (x *extractor) mkdir(e entry) error {
	path := x.path(e.rel)
	err := x.root.Mkdir(path, 0o700)
	if err == nil {
		x.dirs[path] = len(x.made)
		x.made = append(x.made, e)
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return inRoot(x.root, path, "cannot create the directory", err)
	}
	fi, err := x.root.Lstat(path)
	if err != nil {
		return inRoot(x.root, path, "cannot look at the destination", err)
	}
	if !fi.IsDir() {
		return inRoot(x.root, path, "a file or a link is in the way of a directory; remove it first", nil)
	}
	x.dirs[path] = existed
	return nil
}

func (x *extractor) writeFile(e entry) error {
	path := x.path(e.rel)
	if err := x.prepare(e.rel, path); err != nil {
		return err
	}
	err := replaceFile(x.root, path, e.mode, e.mtime, func(w io.Writer) error {
		if _, err := x.copier.copy(w, x.in); err != nil {
			return x.in.explain(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	x.stats.Files++
	x.stats.Bytes += e.size
	return nil
}

// prepare makes the parents of a file or link and looks at what has its name.
func (x *extractor) prepare(rel, path string) error {
	if err := x.makeParents(rel); err != nil {
		return err
	}
	return checkReplaceable(x.root, path)
}

// finish runs on a complete archive. No path of this extraction runs through a
// link at any time: tree refuses entries below one, makeParents those that were
// there before.
func (x *extractor) finish() error {
	for _, e := range x.links {
		if err := x.makeLink(e); err != nil {
			return err
		}
		x.stats.Links++
	}
	for i := len(x.made) - 1; i >= 0; i-- {
		if err := x.finishDir(x.made[i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *extractor) makeLink(e entry) error {
	path := x.path(e.rel)
	if err := x.prepare(e.rel, path); err != nil {
		return err
	}
	tmp := temporaryName(path)
	var err error
	if e.kind == entryHardLink {
		err = x.root.Link(x.path(e.link), tmp)
	} else {
		err = x.root.Symlink(e.link, tmp)
	}
	if err == nil {
		err = x.root.Rename(tmp, path)
	}
	// Also after a success: renaming a hard link onto its own file, as two names
	// may turn out to be where case is ignored, does nothing and keeps both.
	x.root.Remove(tmp)
	if err != nil {
		return inRoot(x.root, path, "cannot create the link", err)
	}
	return nil
}

func (x *extractor) finishDir(e entry) error {
	path := x.path(e.rel)
	if err := x.root.Chmod(path, e.mode); err != nil {
		return inRoot(x.root, path, "cannot set its mode", err)
	}
	if e.mtime.IsZero() {
		return nil
	}
	if err := x.root.Chtimes(path, e.mtime, e.mtime); err != nil {
		return inRoot(x.root, path, "cannot set its modification time", err)
	}
	return nil
}
