package modal

import (
	"context"
	"errors"
	"fmt"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// List returns the running sandboxes of the app that carry our labels. Names and
// tags come with the list; a row without them costs one more call.
func (d *Driver) List(ctx context.Context, request plugin.ListRequest) (*plugin.SandboxList, error) {
	app, err := d.app(ctx, false)
	if errors.As(err, new(modalsdk.NotFoundError)) {
		return &plugin.SandboxList{}, nil // the app is made by the first create
	}
	if err != nil {
		return nil, classify(err, "looking up the Modal app %s", d.settings.App)
	}
	client, err := d.sdk()
	if err != nil {
		return nil, err
	}
	d.forgetDestroyed()
	wanted := map[string]string{plugin.LabelCreatedBy: plugin.CreatedBy}
	if request.Owner != "" {
		wanted[plugin.LabelOwner] = request.Owner
	}
	ctx, collected := withAnswers(ctx)
	listing, cancel := context.WithTimeout(ctx, fileLimit)
	defer cancel()
	rows, err := client.Sandboxes.List(listing, &modalsdk.SandboxListParams{AppID: app.AppID, Tags: wanted})
	if err != nil {
		return nil, classify(err, "listing the sandboxes at Modal")
	}
	list := &plugin.SandboxList{}
	for sb, err := range rows {
		if err != nil {
			return nil, classify(err, "listing the sandboxes at Modal")
		}
		if d.isDestroyed(sb.SandboxID) {
			continue
		}
		sandbox, err := d.describe(ctx, sb, collected.row(sb.SandboxID))
		switch {
		case isGone(err):
		case err != nil:
			list.Warnings = append(list.Warnings, fmt.Sprintf("the sandbox %s cannot be read: %s", sb.SandboxID, message(err)))
		case sandbox != nil:
			list.Sandboxes = append(list.Sandboxes, sandbox)
		}
	}
	return list, nil
}

// describe makes a list entry of a row, or of the sandbox's tags where the row
// has none. It returns nil for a sandbox that is not ours.
func (d *Driver) describe(ctx context.Context, sb *modalsdk.Sandbox, row *pb.SandboxInfo) (*plugin.Sandbox, error) {
	tags := make(map[string]string, len(row.GetTags()))
	for _, tag := range row.GetTags() {
		tags[tag.GetTagName()] = tag.GetTagValue()
	}
	if len(tags) == 0 {
		ctx, cancel := context.WithTimeout(ctx, lookupLimit)
		defer cancel()
		var err error
		if tags, err = sb.GetTags(ctx, nil); err != nil {
			return nil, err
		}
	}
	sandbox, ours := sandboxFromTags(sb.SandboxID, tags)
	if !ours {
		return nil, nil
	}
	if created := row.GetCreatedAt(); created > 0 {
		sandbox.CreatedAt = unixTime(created)
	}
	return sandbox, nil
}

func unixTime(seconds float64) time.Time {
	return time.UnixMilli(int64(seconds * 1000)).UTC()
}
