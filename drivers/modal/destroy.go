package modal

import (
	"context"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Destroy ends a sandbox without waiting until it is gone, which takes half a
// minute at Modal. Its lifetime stays as the backstop.
func (d *Driver) Destroy(ctx context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	sb, h, err := d.open(ctx, ref)
	if plugin.KindOf(err) == plugin.KindNotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if d.isDestroyed(h.ModalID) {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, terminateLimit)
	defer cancel()
	ctx, collected := withAnswers(ctx)
	if _, err := sb.Terminate(ctx, nil); err != nil {
		if isGone(err) {
			return true, nil
		}
		return false, classify(err, "terminating the sandbox %s", h.ModalID)
	}
	d.remember(h.ModalID)
	return collected.hadEnded(), nil
}
