package ledger

import (
	"context"
	"fmt"
	"time"
)

// settlePoll is how often WaitSettled looks. It is well below the time a backend needs to create a sandbox.
const settlePoll = 20 * time.Millisecond

// WaitSettled waits until the sandbox id is ready or gone, or the process that creates it is known to be dead, and returns
// the record as it is then; Abandoned tells the last case. Errors: *NotFoundError when the intent was dropped, Problem, or
// one that wraps ctx.Err() with the record as last seen.
func (l *Ledger) WaitSettled(ctx context.Context, id string) (Record, error) {
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		r, err := l.Get(id)
		if err != nil || r.State == StateReady || r.State == StateGone {
			return r, err
		}
		if r.Abandoned() {
			// It may have finished its work and exited between the read and the look.
			return l.Get(id)
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("gave up waiting for process %d to create the sandbox %q (%s): %w", r.Process.PID, r.Name, r.ID, ctx.Err())
		case <-tick.C:
		}
	}
}
