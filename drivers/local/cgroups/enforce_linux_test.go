package cgroups

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestEnforced makes a group where sandboxes have theirs and uses up what it may.
func TestEnforced(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making control groups needs root, or what is delegated to a user")
	}
	support := Discover(Self())
	for _, controller := range []Controller{CPU, Memory} {
		if obstacle, ok := support.Obstacle(controller); !ok {
			t.Skipf("%s: %s", controller, obstacle.Reason)
		}
	}
	limits := Limits{CPUs: 0.5, MemoryBytes: 64 << 20}
	group := support.Plan(fmt.Sprintf("cgroups-test-enforced-%d", os.Getpid()), limits)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := group.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := group.Make(limits); err != nil {
		t.Fatal(err)
	}
	// tail keeps what it will print, and the shell's other child is no smaller.
	hog := exec.Command("sh", "-c", "tail /dev/zero & tail /dev/zero; wait; sleep 1000")
	hog.SysProcAttr = &syscall.SysProcAttr{}
	if err := group.Start(hog); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); group.Kills() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("nothing was killed for want of memory")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := group.Remove(ctx); err != nil {
		t.Error(err)
	}
	if err := hog.Wait(); err == nil {
		t.Error("the group was removed, but its process ended well")
	}
}
