package host

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Failure is one driver's error.
type Failure struct {
	Driver string
	Err    error
}

// Each starts the named drivers, at most limit at a time, calls do for each and
// closes it. Drivers fail on their own: the failures come back in the order of
// names, those of starting included. do is called from several goroutines.
func (h *Host) Each(ctx context.Context, names []string, limit int, do func(context.Context, *Driver) error) []Failure {
	errs := make([]error, len(names))
	var group errgroup.Group
	group.SetLimit(max(limit, 1))
	for i, name := range names {
		group.Go(func() error {
			errs[i] = h.with(ctx, name, do)
			return nil
		})
	}
	_ = group.Wait()
	var failures []Failure
	for i, err := range errs {
		if err != nil {
			failures = append(failures, Failure{Driver: names[i], Err: err})
		}
	}
	return failures
}

func (h *Host) with(ctx context.Context, name string, do func(context.Context, *Driver) error) error {
	driver, err := h.Start(ctx, name)
	if err != nil {
		return err
	}
	defer driver.Close()
	return do(ctx, driver)
}
