package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/sandboxctl/sandboxctl/drivers/local/network"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// networked reports whether the sandbox has a network, whose other end needs a keeper.
func (r *record) networked() bool { return networked(&r.Spec) }

func networked(spec *plugin.SandboxSpec) bool {
	return spec.Network.Mode == plugin.NetworkOpen || spec.Network.Mode == plugin.NetworkAllow
}

// needsKeeper reports whether there is anything that a process has to do for the sandbox
// while nobody calls.
func (r *record) needsKeeper() bool {
	return r.networked() || !r.Spec.ExpiresAt.IsZero() || r.Spec.IdleTimeout != 0
}

// lostKeeper says what it means that a sandbox's keeper is gone.
func lostKeeper(known *record) string {
	reason := "its keeper process is gone, so that only gc ends it in time"
	if known.networked() {
		reason = "its keeper process is gone, and with it its network"
	}
	return reason
}

// keeping is a keeper that was started and waits for its sandbox.
type keeping struct {
	sandbox sandbox
	process *os.Process
	// orders is read by the keeper, and says by its end that there will be none.
	orders, said *os.File
	// guests is the sandbox's end of the network, and held what keeps the other one
	// open should the keeper die; both are nil without network.
	guests, held *os.File
}

// startKeeper starts the keeper of a sandbox that is being made, or that has lost its
// keeper. Without network the keeper keeps the time only.
func (s sandbox) startKeeper(withNetwork bool) (started *keeping, err error) {
	k := &keeping{sandbox: s}
	var theirs []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			k.close()
		}
	}()
	pipe := func(ours, their **os.File, writing bool) error {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		if *ours, *their = read, write; writing {
			*ours, *their = write, read
		}
		theirs = append(theirs, *their)
		return nil
	}
	var stdin, stdout *os.File
	if err := errors.Join(pipe(&k.orders, &stdin, true), pipe(&k.said, &stdout, false)); err != nil {
		return nil, err
	}
	command := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{KeeperName, s.dir}, Dir: s.dir, Env: []string{},
		Stdin: stdin, Stdout: stdout,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if withNetwork {
		link, guests, err := network.Pair()
		if err != nil {
			return nil, fmt.Errorf("the sandbox's network cannot be made: %w", err)
		}
		k.guests = guests
		theirs = append(theirs, link)
		if k.held, err = network.Hold(link, s.dir); err != nil {
			return nil, err
		}
		command.ExtraFiles = []*os.File{link}
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("the sandbox's keeper cannot be started: %w", err)
	}
	k.process = command.Process
	// It ends with the keeper or with the driver, and keeps a dead keeper from staying a zombie.
	go func() { _ = command.Wait() }()
	return k, nil
}

// close gives up what was not released: the keeper ends.
func (k *keeping) close() {
	for _, file := range []*os.File{k.orders, k.said, k.guests, k.held} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// release connects the running sandbox, whose process is named, with its keeper and lets
// the keeper go on alone.
func (k *keeping) release(ctx context.Context, pid int) error {
	if err := k.awaitReady(ctx); err != nil {
		return err
	}
	if k.guests != nil {
		if err := k.sandbox.connect(ctx, k.guests); err != nil {
			return fmt.Errorf("the sandbox cannot be connected with its network: %w", err)
		}
	}
	if _, err := fmt.Fprintf(k.orders, keeperGo, pid); err != nil {
		return fmt.Errorf("the sandbox's keeper has ended: %w", err)
	}
	return nil
}

func (k *keeping) awaitReady(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = k.said.Close() })
	defer stop()
	line, err := bufio.NewReader(k.said).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case line == keeperReady:
		return nil
	case line != "":
		return errors.New(strings.TrimSpace(line))
	}
	return fmt.Errorf("the sandbox's keeper ended before it was ready: %w", err)
}

// keepTime makes a running sandbox's keeper know of a changed record, and starts one
// where there is none and one is needed now. The caller holds the sandbox's lock.
func (s sandbox) keepTime(ctx context.Context, known *record) error {
	if _, err := s.ask(ctx, askLook); err == nil || !known.needsKeeper() {
		return nil
	}
	started, err := s.startKeeper(false)
	if err != nil {
		return err
	}
	defer started.close()
	return started.release(ctx, s.pid())
}
