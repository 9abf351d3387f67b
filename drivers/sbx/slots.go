package sbx

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// createSlots is how many creates run at once on this machine. sbx asks Docker Hub
// for a token at each: at 8 in parallel one takes a minute, at 20 Hub refuses
// (docker/sbx-releases#528, #529).
const createSlots = 4

const slotPoll = 100 * time.Millisecond

// takeCreateSlot waits for a turn. The slots are file locks, which end with the
// process that holds them.
func (d *Driver) takeCreateSlot(ctx context.Context) (*flock.Flock, error) {
	for {
		for n := range createSlots {
			slot := flock.New(filepath.Join(d.config.StateDir, fmt.Sprintf("create-%d.lock", n)))
			taken, err := slot.TryLock()
			if err != nil {
				return nil, plugin.Errorf(plugin.KindInternal, "cannot lock in the driver's state directory: %w", err)
			}
			if taken {
				return slot, nil
			}
		}
		select {
		case <-time.After(slotPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
