package modal

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// handle is what the host keeps of a sandbox for us.
type handle struct {
	// ModalID is Modal's own ID.
	ModalID string `json:"modal_id"`
	// Expires is when Modal ends the sandbox at the earliest, in unix seconds.
	Expires int64 `json:"expires"`
	// Workdir is the working directory asked for, if any.
	Workdir string `json:"workdir,omitempty"`
}

func (h handle) encode() []byte {
	// A struct of strings and numbers always encodes.
	encoded, _ := json.Marshal(h)
	return encoded
}

func (h handle) expires() time.Time { return time.Unix(h.Expires, 0) }

// modalName is the sandbox's name at Modal. It is known before the create call,
// so that what a lost call made can be found, and never reused, because Modal
// releases names late.
func modalName(id string) string { return "sandboxctl-" + id }

// resolve turns a reference into a handle, by name where the host has lost the
// handle. It does not say whether the sandbox is alive.
func (d *Driver) resolve(ctx context.Context, ref plugin.Ref) (handle, error) {
	if len(ref.Handle) == 0 {
		return d.findByName(ctx, ref.ID)
	}
	var h handle
	if err := json.Unmarshal(ref.Handle, &h); err != nil || !strings.HasPrefix(h.ModalID, "sb-") {
		return handle{}, plugin.NotFoundf("%q is not a handle of the modal driver, so there is no sandbox behind it", ref.Handle)
	}
	return h, nil
}

func (d *Driver) findByName(ctx context.Context, id string) (handle, error) {
	if id == "" {
		return handle{}, plugin.NotFoundf("the reference to a Modal sandbox is empty")
	}
	client, err := d.sdk()
	if err != nil {
		return handle{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	sb, err := client.Sandboxes.FromName(ctx, d.settings.App, modalName(id), nil)
	if errors.As(err, new(modalsdk.NotFoundError)) {
		return handle{}, plugin.NotFoundf("Modal has no running sandbox named %s", modalName(id))
	}
	if err != nil {
		return handle{}, classify(err, "looking up the sandbox %s", id)
	}
	tags, err := sb.GetTags(ctx, nil)
	if err != nil {
		return handle{}, classify(err, "reading the tags of the sandbox %s", id)
	}
	found, ours := plugin.SandboxFromLabels(tags)
	if !ours || found.ID != id {
		return handle{}, plugin.NotFoundf("Modal's sandbox named %s was not made by sandboxctl", modalName(id))
	}
	return handleFromTags(sb.SandboxID, tags), nil
}

func handleFromTags(modalID string, tags map[string]string) handle {
	h := handle{ModalID: modalID, Workdir: tags[tagWorkdir]}
	if found, ours := plugin.SandboxFromLabels(tags); ours && !found.ExpiresAt.IsZero() {
		// The label is rounded up to the second, by less than one.
		h.Expires = found.ExpiresAt.Unix() - 1
	}
	return h
}

// open returns the SDK's object for a sandbox, without a call.
func (d *Driver) open(ctx context.Context, ref plugin.Ref) (*modalsdk.Sandbox, handle, error) {
	h, err := d.resolve(ctx, ref)
	if err != nil {
		return nil, handle{}, err
	}
	client, err := d.sdk()
	if err != nil {
		return nil, handle{}, err
	}
	sb, err := client.Sandboxes.FromID(ctx, h.ModalID, nil)
	if err != nil {
		return nil, handle{}, classify(err, "opening the sandbox %s", h.ModalID)
	}
	return sb, h, nil
}
