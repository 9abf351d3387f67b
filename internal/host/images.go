package host

import (
	"context"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// ListImages lists the images that the driver keeps.
func (d *Driver) ListImages(ctx context.Context) ([]plugin.Image, error) {
	return call(ctx, d, "list images", lookLimit, d.client.ListImages)
}

// PullImage fetches an image, or a newer one of the same name.
func (d *Driver) PullImage(ctx context.Context, reference string, progress func(plugin.Progress)) (*plugin.Image, error) {
	return call(ctx, d, "pull the image", createLimit, func(ctx context.Context) (*plugin.Image, error) {
		return d.client.PullImage(ctx, reference, progress)
	})
}

// RemoveImage removes an image and returns how many bytes that gave back.
func (d *Driver) RemoveImage(ctx context.Context, reference string) (freedBytes uint64, err error) {
	return call(ctx, d, "remove the image", changeLimit, func(ctx context.Context) (uint64, error) {
		return d.client.RemoveImage(ctx, reference)
	})
}
