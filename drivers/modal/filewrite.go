package modal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	// apiMode is the mode that the API gives every file it writes.
	apiMode = 0o644
	// inMemory is the size up to which content is not put on disk first. The API
	// wants to know the whole of it, or a file that it can read again.
	inMemory = 1 << 20
)

// WriteFile writes a file and sets its mode, which the API does not keep: that
// of the file there before, or else the one given.
func (d *Driver) WriteFile(ctx context.Context, ref plugin.Ref, name string, mode uint32, r io.Reader) error {
	if !utf8.ValidString(name) {
		return d.shell.WriteFile(ctx, ref, name, mode, r)
	}
	f, err := d.files(ctx, ref, name)
	if err != nil {
		return err
	}
	if before, err := f.stat(ctx, false); err == nil && fileKind(before) == plugin.FileRegular {
		mode = before.Mode
	} else if err != nil && plugin.KindOf(err) == plugin.KindNotFound {
		return err
	}
	// Everything is read before anything is written, so that a reader that fails
	// leaves the file as it was.
	if err := f.upload(ctx, r); err != nil {
		return err
	}
	if mode &= permissions; mode == 0 || mode == apiMode {
		return nil
	}
	return f.chmod(ctx, mode)
}

func (f *file) upload(ctx context.Context, r io.Reader) error {
	head, err := io.ReadAll(io.LimitReader(r, inMemory))
	if err != nil {
		return err
	}
	if len(head) < inMemory {
		return f.limited(ctx, int64(len(head)), func(ctx context.Context) error {
			return f.sandbox.Filesystem.WriteBytes(ctx, head, f.path, nil)
		})
	}
	spool, err := f.spool(head, r)
	if err != nil {
		return err
	}
	defer func() {
		if err := os.Remove(spool); err != nil {
			f.driver.config.Logger.Warn("a temporary file is not removed", "error", err)
		}
	}()
	info, err := os.Stat(spool)
	if err != nil {
		return plugin.Errorf(plugin.KindInternal, "the upload on disk cannot be read: %w", err)
	}
	return f.limited(ctx, info.Size(), func(ctx context.Context) error {
		return f.sandbox.Filesystem.CopyFromLocal(ctx, spool, f.path, nil)
	})
}

// limited runs an upload of size bytes under a deadline.
func (f *file) limited(ctx context.Context, size int64, write func(context.Context) error) error {
	limit := fileLimit + time.Duration(size/uploadRate)*time.Second
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := write(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return plugin.Errorf(plugin.KindUnavailable, "cannot write %s: Modal did not take %d bytes within %s", shorten(f.path), size, limit)
	}
	return f.explainWrite(ctx, err)
}

// spool puts content on disk, since the API sends a file faster than stdin and
// can resume it.
func (f *file) spool(head []byte, rest io.Reader) (string, error) {
	dir := filepath.Join(f.driver.config.StateDir, "uploads")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", plugin.Errorf(plugin.KindInternal, "the upload cannot be kept on disk: %w", err)
	}
	f.driver.removeStale(dir)
	temp, err := os.CreateTemp(dir, "")
	if err != nil {
		return "", plugin.Errorf(plugin.KindInternal, "the upload cannot be kept on disk: %w", err)
	}
	_, err = temp.Write(head)
	if err == nil {
		_, err = io.Copy(temp, rest)
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return "", errors.Join(err, os.Remove(temp.Name()))
	}
	return temp.Name(), nil
}

// removeStale removes what a killed driver has left. No upload outlives its sandbox,
// so what is older than any sandbox is no longer in use.
func (d *Driver) removeStale(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the next upload looks again
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < maxLifetime+lifetimeGrace {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.config.Logger.Warn("an old temporary file is not removed", "error", err)
		}
	}
}

func (f *file) explainWrite(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return f.explain(ctx, "write", err)
}

// chmod runs the image's own chmod. A file with the wrong mode is an error, and
// stays, since its content is right.
func (f *file) chmod(ctx context.Context, mode uint32) error {
	ctx, cancel := context.WithTimeout(ctx, fileLimit)
	defer cancel()
	// The path is absolute, so it cannot be taken for an option.
	process, err := f.sandbox.Exec(ctx, []string{"chmod", fmt.Sprintf("%o", mode), f.path}, &modalsdk.SandboxExecParams{Timeout: fileLimit})
	if err != nil {
		return classify(err, "setting the mode of %s", shorten(f.path))
	}
	code, err := process.Wait(ctx, nil)
	if err != nil {
		return classify(err, "setting the mode of %s", shorten(f.path))
	}
	if code != 0 {
		return plugin.PathErrorf(f.path, plugin.PathOther, "%s is written, but its mode is %o and could not be made %o", shorten(f.path), apiMode, mode)
	}
	return nil
}
