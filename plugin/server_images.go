package plugin

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

func (s *server) images() (ImageStore, error) {
	if store, ok := s.driver.(ImageStore); ok {
		return store, nil
	}
	return nil, s.unsupported("keep images")
}

func (s *server) ListImages(ctx context.Context, _ *driverpb.ListImagesRequest) (*driverpb.ListImagesResponse, error) {
	store, err := s.images()
	if err != nil {
		return nil, err
	}
	images, err := store.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	answer := &driverpb.ListImagesResponse{}
	for _, image := range images {
		answer.Images = append(answer.Images, imageToWire(image))
	}
	return answer, nil
}

func (s *server) PullImage(request *driverpb.PullImageRequest, stream grpc.ServerStreamingServer[driverpb.PullImageResponse]) error {
	store, err := s.images()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	send := func(event *driverpb.PullImageResponse) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(event)
	}
	image, err := store.PullImage(stream.Context(), request.GetReference(), func(progress Progress) {
		// That the host is gone is seen from the context.
		_ = send(&driverpb.PullImageResponse{Event: &driverpb.PullImageResponse_Progress{Progress: progressToWire(progress)}})
	})
	if err != nil {
		return err
	}
	if image == nil {
		return Errorf(KindInternal, "driver %s returned no image", s.driver.Info().Name)
	}
	return send(&driverpb.PullImageResponse{Event: &driverpb.PullImageResponse_Image{Image: imageToWire(*image)}})
}

func (s *server) RemoveImage(ctx context.Context, request *driverpb.RemoveImageRequest) (*driverpb.RemoveImageResponse, error) {
	store, err := s.images()
	if err != nil {
		return nil, err
	}
	freed, err := store.RemoveImage(ctx, request.GetReference())
	if err != nil {
		return nil, err
	}
	return &driverpb.RemoveImageResponse{FreedBytes: freed}, nil
}
