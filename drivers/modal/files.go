package modal

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Modal's file API has a helper of its own in every sandbox, so listing and
// writing need nothing in the image. It cannot read part of a file, and knows
// single files only: reads and whole trees go through the shell; see New.

const (
	// maxLinks is how many links are followed before they count as a loop.
	maxLinks = 40
	// maxPath is the longest path that Linux takes, in bytes.
	maxPath = 4096
)

// POSIX file types in the upper bits of a mode.
const (
	typeMask      = 0o170000
	typeRegular   = 0o100000
	typeDirectory = 0o040000
	typeSymlink   = 0o120000
	permissions   = 0o7777
)

// Stat describes a file. The API never follows links, so that is done here.
func (d *Driver) Stat(ctx context.Context, ref plugin.Ref, name string, follow bool) (plugin.FileInfo, error) {
	if !utf8.ValidString(name) {
		return d.shell.Stat(ctx, ref, name, follow)
	}
	f, err := d.files(ctx, ref, name)
	if err != nil {
		return plugin.FileInfo{}, err
	}
	info, err := f.stat(ctx, follow)
	if err != nil {
		return plugin.FileInfo{}, err
	}
	described := fileInfo(info)
	described.Name = path.Base(f.path)
	if isMangled(described.LinkTarget) {
		return d.shell.Stat(ctx, ref, name, follow)
	}
	return described, nil
}

// ReadDir lists a directory, through links.
func (d *Driver) ReadDir(ctx context.Context, ref plugin.Ref, name string) ([]plugin.FileInfo, error) {
	if !utf8.ValidString(name) {
		return d.shell.ReadDir(ctx, ref, name)
	}
	f, err := d.files(ctx, ref, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fileLimit)
	defer cancel()
	entries, err := f.sandbox.Filesystem.ListFiles(ctx, f.path, nil)
	if err != nil {
		return nil, f.explain(ctx, "list", err)
	}
	listed := make([]plugin.FileInfo, 0, len(entries))
	for i := range entries {
		listed = append(listed, fileInfo(&entries[i]))
		if isMangled(entries[i].Name) || isMangled(listed[i].LinkTarget) {
			return d.shell.ReadDir(ctx, ref, name)
		}
	}
	return listed, nil
}

// isMangled says that a name may not be what it was: the API speaks JSON, which
// has no bytes but UTF-8. Such names go through the shell.
func isMangled(name string) bool { return strings.ContainsRune(name, utf8.RuneError) }

// ReadFile streams a file. The API's own read is not bounded by anything, so
// only the shell's is used.
func (d *Driver) ReadFile(ctx context.Context, ref plugin.Ref, name string, maxBytes int64, w io.Writer) error {
	return d.shell.ReadFile(ctx, ref, name, maxBytes, w)
}

// GetArchive packs a tree in the sandbox.
func (d *Driver) GetArchive(ctx context.Context, ref plugin.Ref, name string, follow bool, w io.Writer) error {
	return d.shell.GetArchive(ctx, ref, name, follow, w)
}

// PutArchive unpacks a tree in the sandbox.
func (d *Driver) PutArchive(ctx context.Context, ref plugin.Ref, dir string, r io.Reader) error {
	return d.shell.PutArchive(ctx, ref, dir, r)
}

// file is one path in one sandbox.
type file struct {
	driver  *Driver
	sandbox *modalsdk.Sandbox
	path    string // absolute
}

func (d *Driver) files(ctx context.Context, ref plugin.Ref, name string) (*file, error) {
	if strings.ContainsRune(name, 0) || len(name) > maxPath || name == "" {
		return nil, plugin.PathErrorf(name, plugin.PathInvalid, "%q cannot be the path of a file", shorten(name))
	}
	sb, h, err := d.open(ctx, ref)
	if err != nil {
		return nil, err
	}
	if d.isDestroyed(h.ModalID) {
		return nil, goneError(h.ModalID)
	}
	if !path.IsAbs(name) {
		if name, err = d.absolute(ctx, sb, h, name); err != nil {
			return nil, err
		}
	}
	return &file{driver: d, sandbox: sb, path: name}, nil
}

func shorten(name string) string {
	const most = 100
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}

// absolute is a relative path from where commands run.
func (d *Driver) absolute(ctx context.Context, sb *modalsdk.Sandbox, h handle, name string) (string, error) {
	workdir, err := d.workdir(ctx, sb, h)
	if err != nil {
		return "", err
	}
	// Not path.Join: it would resolve ".." without looking at links.
	return strings.TrimSuffix(workdir, "/") + "/" + name, nil
}

// workdir is where commands run: what create asked for, or else what the image
// says, for which there is no call.
func (d *Driver) workdir(ctx context.Context, sb *modalsdk.Sandbox, h handle) (string, error) {
	if h.Workdir != "" {
		return h.Workdir, nil
	}
	d.mu.Lock()
	known := d.workdirs[h.ModalID]
	d.mu.Unlock()
	if known != "" {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	process, err := sb.Exec(ctx, []string{"pwd"}, &modalsdk.SandboxExecParams{Timeout: startLimit})
	if err != nil {
		return "", classify(err, "asking for the working directory of the sandbox %s", h.ModalID)
	}
	if code, err := process.Wait(ctx, nil); err != nil || code != 0 {
		return "", plugin.Errorf(plugin.KindRefused, "the image has no pwd to tell its working directory with").
			WithHint("use an absolute path")
	}
	said, err := io.ReadAll(io.LimitReader(process.Stdout, maxPath+1))
	if err != nil {
		return "", classify(err, "asking for the working directory of the sandbox %s", h.ModalID)
	}
	known = strings.TrimSuffix(string(said), "\n")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workdirs[h.ModalID] = known
	return known, nil
}

// stat asks for a file, and for what it points to when links are followed. The
// entry's path is then where the links lead.
func (f *file) stat(ctx context.Context, follow bool) (*modalsdk.FileInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, fileLimit)
	defer cancel()
	at := f.path
	for range maxLinks {
		info, err := f.sandbox.Filesystem.Stat(ctx, at, nil)
		if err != nil {
			return nil, f.explain(ctx, "stat", err)
		}
		if !follow || info.Type != modalsdk.FileTypeSymlink || info.SymlinkTarget == nil {
			return info, nil
		}
		if at = *info.SymlinkTarget; !path.IsAbs(at) {
			at = path.Dir(strings.TrimRight(info.Path, "/")) + "/" + at
		}
	}
	return nil, plugin.PathErrorf(f.path, plugin.PathOther, "cannot stat %s: there are too many links", shorten(f.path))
}

func fileInfo(info *modalsdk.FileInfo) plugin.FileInfo {
	described := plugin.FileInfo{
		Name:    info.Name,
		Kind:    fileKind(info),
		Size:    info.Size,
		Mode:    info.Mode & permissions,
		ModTime: time.UnixMicro(int64(info.ModifiedTime * 1e6)).UTC(),
	}
	if info.SymlinkTarget != nil {
		described.LinkTarget = *info.SymlinkTarget
	}
	return described
}

// fileKind trusts the mode's type bits over the API's type, which calls
// everything a file that is neither a directory nor a link.
func fileKind(info *modalsdk.FileInfo) plugin.FileKind {
	switch info.Mode & typeMask {
	case typeDirectory:
		return plugin.FileDirectory
	case typeSymlink:
		return plugin.FileSymlink
	case typeRegular:
		return plugin.FileRegular
	case 0:
		return plugin.FileKind(info.Type) // the mode holds permissions only
	default:
		return plugin.FileOther
	}
}

// explain gives an error of the file API its class. The API says "the sandbox is
// unavailable" or "an unexpected error" of almost anything, so the sandbox itself
// is asked then.
func (f *file) explain(ctx context.Context, verb string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // the API says of a cancelled call that the sandbox is gone
	}
	reasons := []struct {
		matches bool
		reason  plugin.PathReason
		says    string
	}{
		{errors.As(err, new(modalsdk.SandboxFilesystemNotFoundError)), plugin.PathMissing, "it does not exist"},
		{errors.As(err, new(modalsdk.SandboxFilesystemIsADirectoryError)), plugin.PathIsDirectory, "it is a directory"},
		{errors.As(err, new(modalsdk.SandboxFilesystemNotADirectoryError)), plugin.PathNotDirectory, "it is not a directory"},
		{errors.As(err, new(modalsdk.SandboxFilesystemPermissionError)), plugin.PathPermission, "permission is denied"},
	}
	for _, r := range reasons {
		if r.matches {
			failure := plugin.PathErrorf(f.path, r.reason, "cannot %s %s: %s", verb, shorten(f.path), r.says)
			failure.Cause = err
			return failure
		}
	}
	// Both are also said of a sandbox that is gone.
	unexpected := errors.As(err, new(modalsdk.SandboxFilesystemError))
	if unexpected || isGone(err) {
		if gone := f.driver.probe(context.WithoutCancel(ctx), f.sandbox); gone != nil {
			return gone
		}
	}
	switch {
	case unexpected:
		failure := plugin.PathErrorf(f.path, plugin.PathOther, "cannot %s %s: %s", verb, shorten(f.path), message(err))
		failure.Cause = err
		return failure
	case isGone(err):
		return plugin.Errorf(plugin.KindUnavailable, "cannot %s %s: Modal's file service in the sandbox does not answer", verb, shorten(f.path))
	}
	return classify(err, "the %s of %s", verb, shorten(f.path))
}
