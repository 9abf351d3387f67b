package modal

import (
	"context"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Inspect describes one sandbox by its tags, after making sure that it is alive.
func (d *Driver) Inspect(ctx context.Context, ref plugin.Ref) (*plugin.Sandbox, error) {
	sb, h, err := d.open(ctx, ref)
	if err != nil {
		return nil, err
	}
	if d.isDestroyed(h.ModalID) {
		return nil, goneError(h.ModalID)
	}
	if err := d.probe(ctx, sb); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	tags, err := sb.GetTags(ctx, nil)
	if err != nil {
		return nil, classify(err, "reading the tags of the sandbox %s", h.ModalID)
	}
	sandbox, ours := sandboxFromTags(h.ModalID, tags)
	if !ours {
		return nil, plugin.NotFoundf("Modal's sandbox %s was not made by sandboxctl", h.ModalID)
	}
	return sandbox, nil
}

// probe says whether a sandbox is alive, by starting a trivial command in it:
// Modal reports a terminated sandbox as running for half a minute, but does not
// start commands there. Whether the command exists does not matter.
func (d *Driver) probe(ctx context.Context, sb *modalsdk.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, livenessLimit)
	defer cancel()
	_, err := sb.Exec(ctx, []string{"true"}, &modalsdk.SandboxExecParams{Stdout: modalsdk.Ignore, Stderr: modalsdk.Ignore})
	if err == nil {
		return nil
	}
	if isGone(err) {
		return goneError(sb.SandboxID)
	}
	return classify(err, "asking whether the sandbox %s is alive", sb.SandboxID)
}

func goneError(modalID string) error {
	return plugin.NotFoundf("the sandbox %s at Modal has ended", modalID)
}
