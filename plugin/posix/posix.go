package posix

import (
	"context"
	"embed"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// ExecFunc runs a command in a sandbox, as plugin.Driver's Exec does.
type ExecFunc func(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error)

// Files implements plugin.FileSystem and plugin.Archiver over an ExecFunc.
type Files struct {
	exec ExecFunc
}

var (
	_ plugin.FileSystem = (*Files)(nil)
	_ plugin.Archiver   = (*Files)(nil)
)

// New returns files over exec.
func New(exec ExecFunc) *Files {
	return &Files{exec: exec}
}

//go:embed recipes/*.sh
var recipes embed.FS

// call is one run of a recipe.
type call struct {
	// verb completes "cannot ... PATH" in errors.
	verb   string
	recipe string
	path   string
	args   []string
	stdin  io.Reader
	stdout io.Writer
	// finished is set when the recipe came to its own end, and so has cleaned up.
	finished bool
}

// run runs a recipe and turns its status into an error. The deadline is ctx's.
func (f *Files) run(ctx context.Context, ref plugin.Ref, c *call) error {
	if err := checkPath(c.verb, c.path); err != nil {
		return err
	}
	script, err := recipe(c.recipe)
	if err != nil {
		return err
	}
	var stderr tail
	output := &output{w: c.stdout}
	request := &plugin.ExecRequest{
		Argv:  append([]string{"sh", "-c", script, "sandboxctl", escape(c.path)}, c.args...),
		Stdin: c.stdin != nil,
	}
	stdio := &plugin.ExecIO{Stdin: c.stdin, Stdout: output, Stderr: &stderr, Started: func(time.Duration) {}}
	if stdio.Stdin == nil {
		stdio.Stdin = noInput{}
	}
	status, err := f.exec(ctx, ref, request, stdio)
	c.finished = err == nil && status.Reason == plugin.ExitExited
	switch {
	case output.err != nil:
		return output.err
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case status.Reason != plugin.ExitExited:
		return plugin.Errorf(plugin.KindInternal, "cannot %s %s: the helper in the sandbox was stopped (%s)", c.verb, quote(c.path), status.Reason)
	}
	return c.explain(status.Code, stderr.String())
}

func recipe(name string) (string, error) {
	prelude, err := recipes.ReadFile("recipes/prelude.sh")
	if err != nil {
		return "", err
	}
	body, err := recipes.ReadFile("recipes/" + name + ".sh")
	return string(prelude) + string(body), err
}

// output remembers that the caller's writer failed, which is the error to report
// then, whatever becomes of the command.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(data []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	if o.w == nil {
		return len(data), nil
	}
	n, err := o.w.Write(data)
	o.err = err
	return n, err
}

// tail keeps the end of what the guest says, in bounded memory.
type tail struct{ data []byte }

func (t *tail) Write(data []byte) (int, error) {
	const most = 2 << 10
	t.data = append(t.data, data[max(0, len(data)-most):]...)
	t.data = append(t.data[:0], t.data[max(0, len(t.data)-most):]...)
	return len(data), nil
}

func (t *tail) String() string { return string(t.data) }

type noInput struct{}

func (noInput) Read([]byte) (int, error) { return 0, io.EOF }

// ReadFile implements plugin.FileSystem. A file that is known to be too large is not
// transferred at all, and one that hides its size, as in /proc, up to maxBytes+1.
func (f *Files) ReadFile(ctx context.Context, ref plugin.Ref, path string, maxBytes int64, w io.Writer) error {
	limited := &limitWriter{w: w, path: path, limit: maxBytes}
	limit := ""
	if maxBytes > 0 {
		limit = strconv.FormatInt(maxBytes, 10)
	}
	return f.run(ctx, ref, &call{verb: "read", recipe: "read", path: path, args: []string{limit}, stdout: limited})
}

// limitWriter refuses what the guest sends beyond the limit, unless that is zero.
type limitWriter struct {
	w           io.Writer
	path        string
	seen, limit int64
}

func (l *limitWriter) Write(data []byte) (int, error) {
	l.seen += int64(len(data))
	if excess := l.seen - l.limit; l.limit > 0 && excess > 0 {
		n, err := l.w.Write(data[:max(0, int64(len(data))-excess)])
		if err == nil {
			err = plugin.TooLarge(l.path, l.seen, l.limit)
		}
		return n, err
	}
	return l.w.Write(data)
}

// WriteFile implements plugin.FileSystem. A symbolic link is followed; a file that
// exists keeps its owner and permissions. Mode zero means 0644.
func (f *Files) WriteFile(ctx context.Context, ref plugin.Ref, path string, mode uint32, r io.Reader) error {
	if mode == 0 {
		mode = 0o644
	}
	args := []string{fmt.Sprintf("%o", mode&0o7777)}
	return f.upload(ctx, ref, &call{verb: "write", recipe: "write", path: path, args: args}, r)
}

// GetArchive implements plugin.Archiver.
func (f *Files) GetArchive(ctx context.Context, ref plugin.Ref, path string, follow bool, w io.Writer) error {
	mode := ""
	if follow {
		mode = "follow"
	}
	return f.run(ctx, ref, &call{verb: "archive", recipe: "pack", path: path, args: []string{mode}, stdout: w})
}

// PutArchive implements plugin.Archiver. Entries belong to the user that the sandbox
// runs as and have exactly the permissions that the archive says.
func (f *Files) PutArchive(ctx context.Context, ref plugin.Ref, dir string, r io.Reader) error {
	return f.upload(ctx, ref, &call{verb: "unpack into", recipe: "unpack", path: dir}, r)
}

// upload runs a recipe that takes content on stdin. When the recipe was stopped, or may
// have been, before it could remove its temporary file, a second exec does: also when
// no content was asked for, since the file is made before.
func (f *Files) upload(ctx context.Context, ref plugin.Ref, c *call, r io.Reader) error {
	content := newUpload(r)
	c.stdin = content
	c.args = append(c.args, content.token)
	err := f.run(ctx, ref, c)
	if !c.finished && plugin.KindOf(err) != plugin.KindNotFound {
		f.discard(ctx, ref, c, content.token)
	}
	if sourceErr := content.failed(); sourceErr != nil {
		return sourceErr
	}
	return err
}

// discard removes the temporary file of an upload that was cut. Its own failure
// changes nothing: the upload's error is what counts, and the sandbox may be gone.
func (f *Files) discard(ctx context.Context, ref plugin.Ref, c *call, token string) {
	fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	_ = f.run(fresh, ref, &call{verb: "clean up", recipe: "discard", path: c.path, args: []string{c.recipe, token}})
}
