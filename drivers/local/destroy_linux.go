package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Destroy implements plugin.Driver.
func (d *Driver) Destroy(ctx context.Context, ref plugin.Ref) (alreadyGone bool, err error) {
	id := idOf(ref)
	if !validID.MatchString(id) {
		return true, nil
	}
	doomed := d.sandbox(id)
	unlock, err := doomed.lock(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	alreadyGone = doomed.pid() == 0
	if err := doomed.remove(ctx); err != nil {
		return false, plugin.Errorf(plugin.KindInternal, "the sandbox %s could not be removed: %w", id, err)
	}
	return alreadyGone, nil
}

// remove ends a sandbox's processes and removes all that there is of it. The caller
// holds its lock.
func (s sandbox) remove(ctx context.Context) error {
	known, _ := s.load()
	if err := s.kill(ctx); err != nil {
		return err
	}
	if known != nil && known.Group != nil {
		if err := known.Group.Remove(ctx); err != nil {
			return err
		}
	}
	// The record goes last, by going with the directory: half a removal is repeated.
	return os.RemoveAll(s.dir)
}

// kill ends every process of the sandbox and returns when they are gone. There is
// nothing in a sandbox that wants to be asked: runsc's own delete would come to the
// same, more slowly.
func (s sandbox) kill(ctx context.Context) error {
	for {
		left, err := s.processes()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
				return fmt.Errorf("process %d of the sandbox cannot be killed: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the sandbox's processes %v do not end: %w", left, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// processes returns runsc's processes for this sandbox: the sandbox itself, its gofer,
// and calls under way. They are looked for, since a create that was killed half way
// has left no word of them.
func (s sandbox) processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && pid != os.Getpid() && s.owns(pid) {
			found = append(found, pid)
		}
	}
	return found, nil
}
