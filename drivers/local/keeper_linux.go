package local

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/drivers/local/network"
)

// KeeperName is what this program is called when it runs as the keeper of a sandbox: a
// process that outlives the driver, is the outside end of the sandbox's network, and
// removes the sandbox when its time is up or nobody uses it. Its only argument is the
// sandbox's directory.
const KeeperName = "sandboxctl-keeper"

const (
	// keeperReady is the line by which a keeper tells the driver that it is.
	keeperReady = "ready\n"
	// keeperGo is the line by which the driver tells a keeper that its sandbox runs, and
	// as which process.
	keeperGo = "go %d\n"
	// keeperLinkFD is where a keeper finds its end of the network.
	keeperLinkFD = 3
	// longestNap bounds how long a keeper sleeps: its timers stand still while the
	// machine is suspended, and the end of a lease is a time of the day.
	longestNap = time.Minute
	// nextTry is how soon a keeper looks again at a sandbox that is in use, or that it
	// could not remove.
	nextTry = time.Second
	// closeLimit bounds how long a keeper that is done ends connections.
	closeLimit = 10 * time.Second
)

// keeper is the process's own state.
type keeper struct {
	sandbox sandbox
	record  *record
	// network is nil for a sandbox that has none.
	network *network.Network
	door    *keeperDoor
}

// Keep is the keeper's main function. It returns the exit code.
func Keep(dir string) int {
	// The terminal's end, and a Ctrl-C that was meant for the command, are not the
	// sandbox's end.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	k := &keeper{sandbox: sandbox{id: filepath.Base(dir), dir: dir}}
	if err := k.prepare(); err != nil {
		fmt.Println(err)
		return 1
	}
	defer k.close()
	fmt.Print(keeperReady)
	var pid int
	if _, err := fmt.Fscanf(os.Stdin, keeperGo, &pid); err != nil {
		// The driver has given up, or was killed.
		return 0
	}
	if err := letGoOfStdio(); err != nil {
		return 1
	}
	k.keep(pid)
	time.AfterFunc(closeLimit, func() { os.Exit(1) })
	return 0
}

func (k *keeper) prepare() error {
	var err error
	if k.record, err = k.sandbox.load(); err != nil {
		return fmt.Errorf("the sandbox's record cannot be read: %w", err)
	}
	if k.record.networked() && linkIsThere() {
		k.network, err = network.Start(network.Config{
			Link: os.NewFile(keeperLinkFD, "link"), Policy: k.record.Spec.Network, Nameservers: k.record.Nameservers,
		})
		if err != nil {
			return fmt.Errorf("the sandbox's network cannot be made: %w", err)
		}
	}
	k.door, err = openDoor(k.sandbox)
	if err != nil {
		k.close()
		return err
	}
	// No file system is held back from being unmounted.
	return os.Chdir("/")
}

// linkIsThere tells the keeper that was started with its sandbox from one that was
// started later, in place of a dead one, and can only keep the time.
func linkIsThere() bool {
	kind, err := unix.GetsockoptInt(keeperLinkFD, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET
}

func (k *keeper) close() {
	if k.door != nil {
		k.door.close()
	}
	if k.network != nil {
		k.network.Close()
	}
}

// letGoOfStdio gives the driver's pipes back, on whose ends somebody may wait.
func letGoOfStdio() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// keep returns when the sandbox has ended, is removed, or needs no keeper any more.
func (k *keeper) keep(pid int) {
	ctx, cancel := context.WithCancel(context.Background())
	died := k.sandbox.awaitDeath(ctx, pid)
	defer func() { cancel(); <-died }()
	nap := time.NewTimer(0)
	defer nap.Stop()
	for {
		select {
		case <-died:
			return
		case visit := <-k.door.visits:
			visit.answer(k.reply(visit.question))
		case <-nap.C:
		}
		known, err := k.sandbox.load()
		if err != nil {
			// Somebody removes the sandbox.
			return
		}
		k.record = known
		if !known.needsKeeper() {
			return
		}
		next, removed := k.look(ctx)
		if removed {
			return
		}
		nap.Reset(next)
	}
}

// look ends the sandbox if it is time, and else says when to look again.
func (k *keeper) look(ctx context.Context) (next time.Duration, removed bool) {
	next = longestNap
	for _, end := range []func(context.Context) (time.Duration, bool){k.lookAtLease, k.lookAtUse} {
		left, removed := end(ctx)
		if removed {
			return 0, true
		}
		next = min(next, left)
	}
	return next, false
}

func (k *keeper) lookAtLease(ctx context.Context) (left time.Duration, removed bool) {
	expires := k.record.Spec.ExpiresAt
	if expires.IsZero() {
		return longestNap, false
	}
	if left := time.Until(expires.Round(0)); left > 0 {
		return left, false
	}
	// It must not wait: who has the lock may be waiting for an answer from here.
	unlock, err := k.sandbox.tryLock()
	if unlock == nil {
		return nextTry, os.IsNotExist(err)
	}
	defer unlock()
	// A renewal may have come before the lock.
	known, err := k.sandbox.load()
	if err != nil || known.Spec.ExpiresAt.IsZero() || time.Now().Before(known.Spec.ExpiresAt) {
		return 0, err != nil
	}
	return k.remove(ctx)
}

// lookAtUse ends a sandbox that nobody has used for long enough.
func (k *keeper) lookAtUse(ctx context.Context) (left time.Duration, removed bool) {
	limit := k.record.Spec.IdleTimeout
	if limit == 0 {
		return longestNap, false
	}
	idle, unlock, err := k.sandbox.idleFor()
	if err != nil {
		return nextTry, os.IsNotExist(err)
	}
	if unlock == nil {
		return nextTry, false
	}
	// While this is held, no command begins.
	defer unlock()
	if idle < limit {
		return limit - idle, false
	}
	unlockSandbox, err := k.sandbox.tryLock()
	if unlockSandbox == nil {
		return nextTry, os.IsNotExist(err)
	}
	defer unlockSandbox()
	return k.remove(ctx)
}

func (k *keeper) remove(ctx context.Context) (left time.Duration, removed bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return nextTry, k.sandbox.remove(ctx) == nil
}

// reply answers a driver's question.
func (k *keeper) reply(question string) keeperAnswer {
	switch {
	case question == askAccesses && k.network != nil:
		return keeperAnswer{Accesses: k.network.Accesses()}
	case question == askAccesses, question == askLook:
		return keeperAnswer{}
	}
	return keeperAnswer{Error: "the keeper of this sandbox, which another version of the driver has started, does not know the question " + question}
}

// awaitDeath closes the channel when the sandbox's process has ended, or the context has.
func (s sandbox) awaitDeath(ctx context.Context, pid int) <-chan struct{} {
	died := make(chan struct{})
	go func() {
		defer close(died)
		wake, sleeper, err := os.Pipe()
		if err != nil {
			return
		}
		defer wake.Close()
		stop := context.AfterFunc(ctx, func() { _ = sleeper.Close() })
		defer func() {
			if stop() {
				_ = sleeper.Close()
			}
		}()
		process, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			defer unix.Close(process)
		}
		for ctx.Err() == nil && s.owns(pid) {
			waited := []unix.PollFd{{Fd: int32(wake.Fd()), Events: unix.POLLIN}}
			patience := int(nextTry / time.Millisecond)
			if err == nil {
				// Before Linux 5.3 there is none, and the process is looked for every second.
				waited = append(waited, unix.PollFd{Fd: int32(process), Events: unix.POLLIN})
				patience = -1
			}
			if _, err := unix.Poll(waited, patience); err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	return died
}
