package plugin

import (
	"context"
	"errors"
	"io"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// ListImages lists the images that the driver keeps; see ImageStore.
func (c *Client) ListImages(ctx context.Context) ([]Image, error) {
	answer, err := c.rpc.ListImages(ctx, &driverpb.ListImagesRequest{})
	if err != nil {
		return nil, fromStatus(ctx, "list images", err)
	}
	images := make([]Image, 0, len(answer.GetImages()))
	for _, image := range answer.GetImages() {
		images = append(images, *imageFromWire(image))
	}
	return images, nil
}

// PullImage fetches an image; see ImageStore.
func (c *Client) PullImage(ctx context.Context, reference string, progress func(Progress)) (*Image, error) {
	const call = "pull the image"
	stream, err := c.rpc.PullImage(ctx, &driverpb.PullImageRequest{Reference: reference})
	if err != nil {
		return nil, fromStatus(ctx, call, err)
	}
	var pulled *Image
	for {
		answer, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && pulled != nil:
			return pulled, nil
		case errors.Is(err, io.EOF):
			return nil, Errorf(KindInternal, "the driver ended the pull of %s without a result", reference)
		case err != nil:
			return nil, fromStatus(ctx, call, err)
		case answer.GetImage() != nil:
			pulled = imageFromWire(answer.GetImage())
		case answer.GetProgress() != nil && progress != nil:
			progress(progressFromWire(answer.GetProgress()))
		}
	}
}

// RemoveImage removes an image; see ImageStore.
func (c *Client) RemoveImage(ctx context.Context, reference string) (freedBytes uint64, err error) {
	answer, err := c.rpc.RemoveImage(ctx, &driverpb.RemoveImageRequest{Reference: reference})
	return answer.GetFreedBytes(), fromStatus(ctx, "remove the image", err)
}
