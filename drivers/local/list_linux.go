package local

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// List implements plugin.Driver. What is left of dead sandboxes is removed on the way,
// since nobody else would.
func (d *Driver) List(ctx context.Context, _ plugin.ListRequest) (*plugin.SandboxList, error) {
	entries, err := os.ReadDir(d.sandboxes)
	if err != nil {
		return nil, plugin.Errorf(plugin.KindUnavailable, "the local driver's state directory cannot be read: %w", err)
	}
	list := &plugin.SandboxList{}
	if err := d.images.Sweep(ctx); err != nil {
		list.Warnings = append(list.Warnings, err.Error())
	}
	for _, entry := range entries {
		if !entry.IsDir() || !validID.MatchString(entry.Name()) {
			continue
		}
		listed := d.sandbox(entry.Name())
		if listed.pid() == 0 {
			if err := d.sweep(ctx, listed); err != nil {
				list.Warnings = append(list.Warnings, fmt.Sprintf("what is left of the dead sandbox %s cannot be removed: %s", listed.id, err))
			}
			continue
		}
		record, err := listed.load()
		if err != nil {
			list.Warnings = append(list.Warnings, fmt.Sprintf("the sandbox %s cannot be read: %s", listed.id, err))
			continue
		}
		list.Sandboxes = append(list.Sandboxes, listed.describe(record))
	}
	return list, nil
}

// sweep removes a dead sandbox, unless somebody is at work on it.
func (d *Driver) sweep(ctx context.Context, dead sandbox) error {
	unlock, err := dead.tryLock()
	if os.IsNotExist(err) || (unlock == nil && err == nil) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if dead.pid() != 0 {
		return nil
	}
	return dead.remove(ctx)
}

// Inspect implements plugin.Inspector.
func (d *Driver) Inspect(_ context.Context, ref plugin.Ref) (*plugin.Sandbox, error) {
	found, record, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	return found.describe(record), nil
}

// Renew implements plugin.Renewer.
func (d *Driver) Renew(ctx context.Context, ref plugin.Ref, expires time.Time) (time.Time, error) {
	found, _, err := d.find(ref)
	if err != nil {
		return time.Time{}, err
	}
	unlock, err := found.lock(ctx)
	if os.IsNotExist(err) {
		return time.Time{}, plugin.NotFoundf("the sandbox %s was removed", found.id)
	}
	if err != nil {
		return time.Time{}, err
	}
	defer unlock()
	known, err := found.load()
	if err != nil {
		return time.Time{}, plugin.Errorf(plugin.KindInternal, "the sandbox %s cannot be read: %w", found.id, err)
	}
	known.Spec.ExpiresAt = expires
	known.Labels = plugin.BackendLabels(&known.Spec)
	if err := found.save(known); err != nil {
		return time.Time{}, plugin.Errorf(storageKind(err), "the sandbox %s cannot be renewed: %w", found.id, err)
	}
	if err := found.keepTime(ctx, known); err != nil {
		return time.Time{}, plugin.Errorf(plugin.KindUnavailable, "the sandbox %s is renewed, but nobody keeps its time: %w", found.id, err).
			WithHint("`sandboxctl gc` removes it after its end")
	}
	return found.describe(known).ExpiresAt, nil
}
