package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/sandboxctl/sandboxctl/internal/transfer"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// copier is one run of cp with both ends open.
type copier struct {
	app      *App
	options  *cpOptions
	src, dst transfer.Arg
	// from and to are nil for a side that is not in a sandbox; they are the same for
	// a copy within one.
	from, to *target
	progress transfer.Progress
}

func (a *App) openCopier(ctx context.Context, src, dst transfer.Arg, options *cpOptions) (*copier, error) {
	c := &copier{app: a, options: options, src: src, dst: dst, progress: a.progress()}
	var err error
	if src.Side == transfer.SideSandbox {
		if c.from, err = a.open(ctx, src.Sandbox); err != nil {
			return nil, err
		}
		// Names are unique, so they tell whether both sides are the same sandbox.
		c.src.Sandbox = c.from.record.Name
	}
	if dst.Side == transfer.SideSandbox {
		if c.to, err = c.openDestination(ctx); err != nil {
			c.close()
			return nil, err
		}
		c.dst.Sandbox = c.to.record.Name
	}
	for _, side := range []*target{c.from, c.to} {
		if side != nil && !side.driver.Info.Capabilities.Files.Files {
			c.close()
			return nil, fromDriver(side.record.Driver, plugin.Refusedf("cp", "driver %s cannot copy files", side.record.Driver))
		}
	}
	return c, nil
}

// openDestination shares the source's driver process where both are the same driver's.
func (c *copier) openDestination(ctx context.Context) (*target, error) {
	if c.from == nil {
		return c.app.open(ctx, c.dst.Sandbox)
	}
	record, err := c.app.find(ctx, c.dst.Sandbox)
	if err != nil {
		return nil, err
	}
	if record.Driver == c.from.record.Driver {
		return &target{record: record, driver: c.from.driver}, nil
	}
	return c.app.open(ctx, c.dst.Sandbox)
}

func (c *copier) close() {
	if c.from != nil {
		c.from.driver.Close()
	}
	if c.to != nil && (c.from == nil || c.to.driver != c.from.driver) {
		c.to.driver.Close()
	}
}

func (c *copier) run(ctx context.Context) (transfer.Stats, error) {
	switch {
	case c.src.Side == transfer.SideStream:
		return c.fromStdin(ctx)
	case c.dst.Side == transfer.SideStream:
		return c.toStdout(ctx)
	}
	from, err := transfer.StatSource(ctx, c.stater(c.from), c.src, c.options.follow)
	if err != nil {
		return transfer.Stats{}, c.explain(c.from, err)
	}
	to, err := transfer.StatDest(ctx, c.stater(c.to), c.dst)
	if err != nil {
		return transfer.Stats{}, c.explain(c.to, err)
	}
	into, err := transfer.Plan(from, to)
	if err != nil {
		return transfer.Stats{}, err
	}
	if from.Info.Kind == transfer.KindFile {
		return c.copyFile(ctx, from, into)
	}
	return c.copyTree(ctx, into)
}

// explain says which driver an error came from, and that the sandbox is gone if so.
func (c *copier) explain(side *target, err error) error {
	if side == nil || err == nil {
		return err
	}
	return gone(side.record, err)
}

// copyTree moves a directory or a link as a tar stream.
func (c *copier) copyTree(ctx context.Context, into transfer.Target) (transfer.Stats, error) {
	switch {
	case c.from == nil:
		return c.pipe(ctx,
			func(ctx context.Context, w io.Writer) (transfer.Stats, error) {
				return transfer.Pack(ctx, w, c.src.Path, transfer.PackOptions{Name: into.Name, FollowLinks: c.options.follow, Progress: c.progress})
			},
			func(ctx context.Context, r io.Reader) (transfer.Stats, error) {
				return transfer.Stats{}, c.put(ctx, into.Dir, r)
			})
	case c.to == nil:
		return c.pipe(ctx, c.get, func(ctx context.Context, r io.Reader) (transfer.Stats, error) {
			return transfer.Unpack(ctx, r, into, transfer.UnpackOptions{Progress: c.progress})
		})
	}
	return c.pipe(ctx,
		func(ctx context.Context, w io.Writer) (transfer.Stats, error) {
			return c.pipeInto(ctx, w, into)
		},
		func(ctx context.Context, r io.Reader) (transfer.Stats, error) {
			return transfer.Stats{}, c.put(ctx, into.Dir, r)
		})
}

// pipeInto renames a sandbox's archive on its way to another sandbox.
func (c *copier) pipeInto(ctx context.Context, w io.Writer, into transfer.Target) (transfer.Stats, error) {
	return c.pipe(ctx, c.get, func(ctx context.Context, r io.Reader) (transfer.Stats, error) {
		return transfer.Rebase(ctx, w, r, into.Name, transfer.RebaseOptions{Progress: c.progress})
	})
}

func (c *copier) get(ctx context.Context, w io.Writer) (transfer.Stats, error) {
	if !c.from.driver.Info.Capabilities.Files.Archive {
		return transfer.Stats{}, noArchive(c.from)
	}
	err := c.from.driver.GetArchive(ctx, c.from.ref(), c.src.Bare(), c.options.follow || c.src.FollowsLink(), w)
	return transfer.Stats{}, c.explain(c.from, err)
}

func (c *copier) put(ctx context.Context, dir string, r io.Reader) error {
	if !c.to.driver.Info.Capabilities.Files.Archive {
		return noArchive(c.to)
	}
	return c.explain(c.to, c.to.driver.PutArchive(ctx, c.to.ref(), dir, r))
}

func noArchive(side *target) error {
	return fromDriver(side.record.Driver, plugin.Refusedf("cp", "driver %s copies single files only", side.record.Driver).
		WithHint("copy the files one by one"))
}

// copyFile moves one regular file without an archive around it.
func (c *copier) copyFile(ctx context.Context, from transfer.Endpoint, into transfer.Target) (transfer.Stats, error) {
	var err error
	switch {
	case c.from == nil:
		err = c.uploadFile(ctx, from, path.Join(into.Dir, into.Name))
	case c.to == nil:
		err = transfer.WriteFileAtomic(into.Dir+"/"+into.Name, from.Info.Mode, from.Info.ModTime, func(w io.Writer) error {
			return c.readFile(ctx, &countingWriter{to: w, progress: c.progress})
		})
	default:
		// A tree of one entry keeps the file's mode and time between sandboxes.
		return c.copyTree(ctx, into)
	}
	if err != nil {
		return transfer.Stats{}, err
	}
	return transfer.Stats{Files: 1, Bytes: from.Info.Size}, nil
}

func (c *copier) uploadFile(ctx context.Context, from transfer.Endpoint, to string) error {
	file, err := os.Open(c.src.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	counted := &countingReader{from: file, progress: c.progress, left: from.Info.Size, name: c.src.Path}
	err = c.to.driver.WriteFile(ctx, c.to.ref(), to, uint32(from.Info.Mode.Perm()), counted)
	return c.explain(c.to, err)
}

// readFile takes no more of one file than of a tree: a guest could fill this machine.
func (c *copier) readFile(ctx context.Context, w io.Writer) error {
	most := transfer.DefaultLimits().Bytes
	return c.explain(c.from, c.from.driver.ReadFile(ctx, c.from.ref(), c.src.Bare(), most, w))
}

func (c *copier) toStdout(ctx context.Context) (transfer.Stats, error) {
	if c.app.printer.Format() == "json" {
		return transfer.Stats{}, usagef("a tar stream to stdout and --json do not go together")
	}
	return c.pipe(ctx, c.get, func(ctx context.Context, r io.Reader) (transfer.Stats, error) {
		return transfer.Passthrough(ctx, c.app.Stdout, r, nil)
	})
}

func (c *copier) fromStdin(ctx context.Context) (transfer.Stats, error) {
	to, err := transfer.StatDest(ctx, c.stater(c.to), c.dst)
	if err != nil {
		return transfer.Stats{}, c.explain(c.to, err)
	}
	into, err := transfer.Plan(transfer.Endpoint{Arg: c.src}, to)
	if err != nil {
		return transfer.Stats{}, err
	}
	return c.pipe(ctx,
		func(ctx context.Context, w io.Writer) (transfer.Stats, error) {
			return transfer.Passthrough(ctx, w, c.app.Stdin, c.progress)
		},
		func(ctx context.Context, r io.Reader) (transfer.Stats, error) {
			return transfer.Stats{}, c.put(ctx, into.Dir, r)
		})
}

// sandboxStater looks at paths in a sandbox.
type sandboxStater struct{ *target }

func (c *copier) stater(side *target) transfer.Stater {
	if side == nil {
		return transfer.Local{}
	}
	return sandboxStater{side}
}

func (s sandboxStater) Stat(ctx context.Context, path string, follow bool) (transfer.Info, error) {
	info, err := s.driver.Stat(ctx, s.ref(), path, follow)
	if isMissing(err) {
		return transfer.Info{}, &missingPath{err}
	}
	if err != nil {
		return transfer.Info{}, err
	}
	kinds := map[plugin.FileKind]transfer.Kind{
		plugin.FileRegular: transfer.KindFile, plugin.FileDirectory: transfer.KindDir, plugin.FileSymlink: transfer.KindSymlink,
	}
	kind, known := kinds[info.Kind]
	if !known {
		kind = transfer.KindOther
	}
	return transfer.Info{
		Kind: kind, Mode: fs.FileMode(info.Mode) & fs.ModePerm, Size: info.Size, ModTime: info.ModTime, LinkTarget: info.LinkTarget,
	}, nil
}

// missingPath is a driver's "no such path" as the standard library tells it.
type missingPath struct{ cause error }

func (e *missingPath) Error() string { return e.cause.Error() }

func (e *missingPath) Is(target error) bool { return target == fs.ErrNotExist }

func (e *missingPath) Unwrap() error { return e.cause }

func isMissing(err error) bool {
	typed, ok := asDriverError(err)
	return ok && typed.Kind == plugin.KindPath && (typed.PathReason == plugin.PathMissing || typed.PathReason == plugin.PathNotDirectory)
}

// errChanged is a local file that is not as long as it was.
func errChanged(name string, what string) error {
	return fmt.Errorf("%s %s while it was read; copy it when nobody writes to it", name, what)
}
