package plugin

import "sync"

// requests serialises what several goroutines send on one stream of requests R.
type requests[R any] struct {
	// cancelRequest is what asks the driver to stop.
	cancelRequest *R

	mu        sync.Mutex
	stream    interface{ Send(*R) error }
	cancelled bool
}

// start sends the first request, and then a cancel that was asked for before there
// was a stream to send it on.
func (r *requests[R]) start(stream interface{ Send(*R) error }, request *R) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream = stream
	if err := stream.Send(request); err != nil || !r.cancelled {
		return err
	}
	return stream.Send(r.cancelRequest)
}

// cancel asks the driver to stop. It is never the first request.
func (r *requests[R]) cancel() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = true
	if r.stream == nil {
		return nil
	}
	return r.stream.Send(r.cancelRequest)
}

// send sends a request after the first.
func (r *requests[R]) send(request *R) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stream.Send(request)
}
