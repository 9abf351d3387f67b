package conformance

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Target is a driver to check.
type Target struct {
	// Start starts the driver and configures it. It is called once, and again by the
	// cases that need a second process at the same backend.
	Start func(ctx context.Context) (*Driver, error)
	// CheckedAgainst says what stood behind the driver, for the report: "the real
	// service", "a double that the vendor's client was run against".
	CheckedAgainst string
	// Image and Options go into every sandbox's specification. An empty Image means
	// the driver's default.
	Image   string
	Options map[string]string
}

// Driver is a driver that runs.
type Driver struct {
	Calls
	// Info is what the driver says of itself.
	Info plugin.Info
	// PID is the driver's process, whose memory is measured; zero when it cannot be.
	PID int
}

// Options choose what is run.
type Options struct {
	// Run, unless nil, selects cases by their ID.
	Run *regexp.Regexp
	// Parallel is how many cases run at once; zero means 4.
	Parallel int
	// Result, unless nil, is called after every case, from one goroutine at a time.
	Result func(Result)
}

// Run checks a driver. Its error means that there was nothing to check: the driver
// did not start. What is wrong with a driver is in the report.
func Run(ctx context.Context, target Target, options Options) (Report, error) {
	session, err := NewSession(ctx, target)
	if err != nil {
		return Report{}, err
	}
	defer session.Close()
	report := session.NewReport()
	var mu sync.Mutex
	session.runAll(ctx, options, func(result Result) {
		mu.Lock()
		defer mu.Unlock()
		report.Add(result)
		if options.Result != nil {
			options.Result(result)
		}
	})
	report.Seconds = time.Since(report.StartedAt).Seconds()
	if err := context.Cause(ctx); err != nil {
		return report, fmt.Errorf("the conformance suite was stopped: %w", err)
	}
	return report, nil
}

// runAll runs what may run in parallel, then what may not, in order.
func (s *Session) runAll(ctx context.Context, options Options, done func(Result)) {
	var together, alone []Case
	for _, c := range Cases() {
		switch {
		case options.Run != nil && !options.Run.MatchString(c.ID):
		case c.Serial:
			alone = append(alone, c)
		default:
			together = append(together, c)
		}
	}
	work := make(chan Case)
	var workers sync.WaitGroup
	for range cmp.Or(options.Parallel, 4) {
		workers.Go(func() {
			for c := range work {
				done(s.Run(ctx, c))
			}
		})
	}
	for _, c := range together {
		if ctx.Err() != nil {
			break
		}
		work <- c
	}
	close(work)
	workers.Wait()
	for _, c := range alone {
		if ctx.Err() != nil {
			return
		}
		done(s.Run(ctx, c))
	}
}
