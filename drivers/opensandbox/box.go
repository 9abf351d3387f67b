package opensandbox

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// boxRef is what later calls need to know of a sandbox. As JSON it is the handle that the host keeps.
type boxRef struct {
	ID      string `json:"id"` // the server's
	Workdir string `json:"workdir,omitempty"`

	sandboxctlID string
}

func (b boxRef) handle() []byte {
	data, err := json.Marshal(b)
	if err != nil {
		panic(err) // two strings always marshal
	}
	return data
}

// resolve reads the handle, or finds the sandbox by our id when the host has lost it.
func (d *Driver) resolve(ctx context.Context, ref plugin.Ref) (boxRef, error) {
	if d.server == nil {
		return boxRef{}, plugin.Errorf(plugin.KindInternal, "the driver has not been configured")
	}
	if len(ref.Handle) > 0 {
		b := boxRef{sandboxctlID: ref.ID}
		// The id becomes part of a URL.
		if err := json.Unmarshal(ref.Handle, &b); err != nil || b.ID == "" || strings.ContainsAny(b.ID, "/?#%.") {
			return boxRef{}, plugin.Errorf(plugin.KindInvalid, "%q is not a reference of an OpenSandbox sandbox", ref.Handle)
		}
		return b, nil
	}
	if ref.ID == "" {
		return boxRef{}, plugin.Errorf(plugin.KindInvalid, "no sandbox was named")
	}
	found, err := d.server.list(ctx, map[string]string{plugin.LabelID: ref.ID})
	if err != nil {
		return boxRef{}, err
	}
	if len(found) == 0 {
		return boxRef{}, plugin.NotFoundf("there is no sandbox with the id %s on the OpenSandbox server", ref.ID)
	}
	return boxRef{ID: found[0].ID, sandboxctlID: ref.ID}, nil
}

// Inspect looks at one sandbox, and asks its egress sidecar for the policy in force.
func (d *Driver) Inspect(ctx context.Context, ref plugin.Ref) (*plugin.Sandbox, error) {
	box, err := d.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	record, err := d.server.get(ctx, box.ID)
	if err != nil {
		return nil, asGone(box.ID, err)
	}
	sandbox := sandboxOf(record)
	if sandbox == nil {
		return nil, plugin.NotFoundf("sandbox %s was not made by sandboxctl", box.ID)
	}
	sandbox.Handle, sandbox.Workdir = box.handle(), box.Workdir
	if sandbox.Network.Mode != plugin.NetworkOpen && running(record) {
		// A sidecar that does not answer leaves what the label says.
		if status, err := d.policy(ctx, box); err == nil {
			sandbox.Network = networkOf(status.Policy)
		}
	}
	return sandbox, nil
}

// List returns what carries sandboxctl's labels. The policy of each is told from its label alone.
func (d *Driver) List(ctx context.Context, request plugin.ListRequest) (*plugin.SandboxList, error) {
	if d.server == nil {
		return nil, plugin.Errorf(plugin.KindInternal, "the driver has not been configured")
	}
	filter := map[string]string{plugin.LabelCreatedBy: plugin.CreatedBy}
	if request.Owner != "" {
		filter[plugin.LabelOwner] = request.Owner
	}
	records, err := d.server.list(ctx, filter)
	if err != nil {
		return nil, err
	}
	list := &plugin.SandboxList{}
	for i := range records {
		if sandbox := sandboxOf(&records[i]); sandbox != nil {
			list.Sandboxes = append(list.Sandboxes, sandbox)
		} else {
			list.Warnings = append(list.Warnings, "sandbox "+records[i].ID+" has sandboxctl's label but no id of ours")
		}
	}
	return list, nil
}

// Destroy removes a sandbox with its sidecar, whatever its state.
func (d *Driver) Destroy(ctx context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	box, err := d.resolve(ctx, ref)
	if plugin.KindOf(err) == plugin.KindNotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	removed, err := d.server.delete(ctx, box.ID)
	return !removed && err == nil, err
}

// Renew moves the expiry and reads it back, since a renewal may lose a race with the expiry itself.
func (d *Driver) Renew(ctx context.Context, ref plugin.Ref, expires time.Time) (time.Time, error) {
	box, err := d.resolve(ctx, ref)
	if err != nil {
		return time.Time{}, err
	}
	before, err := d.server.get(ctx, box.ID)
	if err != nil {
		return time.Time{}, asGone(box.ID, err)
	}
	switch {
	case before.ExpiresAt == nil && expires.IsZero():
		return expires, nil
	case expires.IsZero():
		return time.Time{}, plugin.Refusedf("--ttl", "an OpenSandbox sandbox that expires cannot be changed to one that does not").
			WithHint("renew it for a long time instead")
	case before.ExpiresAt == nil:
		return time.Time{}, plugin.Refusedf("--ttl", "sandbox %s was made without an expiry, and the server cannot give it one later", box.ID).
			WithHint("create it with --ttl")
	}
	// The server compares with its own clock, and takes whole seconds.
	wanted := expires.Add(before.clock + time.Second - 1).Truncate(time.Second)
	if err := d.server.renew(ctx, box.ID, wanted); err != nil {
		return time.Time{}, asGone(box.ID, err)
	}
	after, err := d.server.get(ctx, box.ID)
	if err != nil {
		return time.Time{}, asGone(box.ID, err)
	}
	if after.ExpiresAt == nil || after.ExpiresAt.Before(wanted.Add(-2*time.Second)) {
		return time.Time{}, plugin.Errorf(plugin.KindConflict, "sandbox %s was renewed, but the server still ends it at %s", box.ID, after.expires().Format(time.RFC3339)).
			WithHint("try again; the server may have a limit on lifetimes")
	}
	if err := d.server.patchMetadata(ctx, box.ID, map[string]string{plugin.LabelExpiresAt: unixLabel(after.expires())}); err != nil {
		d.logger.Warn("the expiry label was not updated", "sandbox", box.ID, "error", err)
	}
	return after.expires(), nil
}
