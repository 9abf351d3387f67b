package sbx

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// removeLimit is how long sbx may take to stop and delete one sandbox.
const removeLimit = 2 * time.Minute

// Destroy implements plugin.Driver. What `sbx rm` returns for a sandbox that is gone
// differs by version, so the listing decides; the workspace and the record go last.
func (d *Driver) Destroy(ctx context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	names, err := d.namesOf(ref)
	if err != nil {
		return false, err
	}
	alreadyGone = true
	if len(names) > 0 {
		if alreadyGone, err = d.removeAll(ctx, names); err != nil {
			return false, err
		}
	}
	if validID.MatchString(ref.ID) {
		if err := removeTree(d.recordDir(ref.ID)); err != nil {
			return false, plugin.Errorf(plugin.KindInternal, "sandbox %s is gone, but its workspace is not: %w", ref.ID, err)
		}
	}
	return alreadyGone, nil
}

// namesOf are the names in sbx that a sandbox may have: its own and those of failed
// attempts to create it. A handle without a record is from another state directory.
func (d *Driver) namesOf(ref plugin.Ref) ([]string, error) {
	rec, err := d.loadRecord(ref.ID)
	switch {
	case err == nil:
		return append([]string{rec.Sandbox}, rec.Former...), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, plugin.Errorf(plugin.KindInternal, "cannot read the record of sandbox %s: %w", ref.ID, err)
	case strings.HasPrefix(string(ref.Handle), sandboxName(ref.ID, 0)):
		return []string{string(ref.Handle)}, nil
	}
	return nil, nil
}

// removeAll removes what exists of these and reports whether nothing did.
func (d *Driver) removeAll(ctx context.Context, names []string) (noneThere bool, err error) {
	p, err := d.program(ctx)
	if err != nil {
		return false, err
	}
	entries, err := p.list(ctx)
	if err != nil {
		return false, err
	}
	noneThere = true
	for _, name := range names {
		if _, exists := entries[name]; !exists {
			continue
		}
		noneThere = false
		if err := p.remove(ctx, name); err != nil {
			return false, err
		}
	}
	return noneThere, nil
}

// remove removes one sandbox and makes sure of it.
func (p *program) remove(ctx context.Context, name string) error {
	out, err := p.runWithin(ctx, removeLimit, "rm", "--force", name)
	if err != nil {
		return err
	}
	entries, err := p.list(ctx)
	if err != nil {
		return err
	}
	if _, exists := entries[name]; exists {
		failure := explain("remove sandbox "+name, out.text())
		failure.LeftBehind = true
		return failure.WithHint("Try `sbx rm --force %s`; if that fails too, `sbx diagnose`.", name)
	}
	return nil
}

// removeTree removes a directory in which a guest has written, also from directories
// whose permissions the guest has taken away.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, openErr := os.OpenRoot(dir)
	if openErr != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = root.Chmod(path, 0o700) // what cannot be changed is told by the next attempt
		}
		return nil
	})
	return os.RemoveAll(dir)
}
