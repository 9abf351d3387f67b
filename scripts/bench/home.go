//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// sandboxName is the sandbox that a home has for commands.
const sandboxName = "bench"

const localDriver = "sandboxctl-driver-local"

// home is a user's surroundings: a state directory and a configuration of their own,
// and sockets where nobody else has any.
type home struct {
	lab *lab
	dir string
}

func (l *lab) newHome(name string) (*home, error) {
	h := &home{lab: l, dir: l.path(name)}
	for _, dir := range []string{h.stateDir(), h.socketDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	config := fmt.Sprintf("drivers:\n  fake:\n    path: %q\n", l.path("sandboxctl-driver-fake"))
	return h, os.WriteFile(h.configFile(), []byte(config), 0o600)
}

func (h *home) stateDir() string   { return filepath.Join(h.dir, "state") }
func (h *home) socketDir() string  { return filepath.Join(h.dir, "tmp") }
func (h *home) configFile() string { return filepath.Join(h.dir, "config.yaml") }

// command is sandboxctl with arguments. When the context ends it is asked to clean up.
func (h *home) command(ctx context.Context, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(h.lab.bin, "sandboxctl"), arguments...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "TMPDIR=" + h.socketDir(),
		"SANDBOXCTL_STATE_DIR=" + h.stateDir(), "SANDBOXCTL_CONFIG=" + h.configFile(),
	}
	// A terminal's Ctrl-C would reach it as well, and a second signal ends it at once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (h *home) run(ctx context.Context, arguments ...string) error {
	_, err := h.lab.timed(h.command(ctx, arguments...))
	return err
}

// variant measures how long a command takes, in milliseconds.
func (h *home) variant(name string, arguments ...string) variant {
	return variant{name: name, run: func(ctx context.Context) ([]float64, error) {
		elapsed, err := h.lab.timed(h.command(ctx, arguments...))
		return one(milliseconds(elapsed), err)
	}}
}

// local returns the home that has a sandbox of the local driver.
func (l *lab) local(ctx context.Context) (*home, error) {
	if l.localHome != nil {
		return l.localHome, nil
	}
	h, err := l.newHome("local")
	if err != nil {
		return nil, err
	}
	l.localHome = h
	return h, h.run(ctx, "create", "--driver", "local", "--name", sandboxName)
}

// fake returns the home that has a sandbox of the fake driver.
func (l *lab) fake(ctx context.Context) (*home, error) {
	if l.fakeHome != nil {
		return l.fakeHome, nil
	}
	h, err := l.newHome("fake")
	if err != nil {
		return nil, err
	}
	l.fakeHome = h
	return h, h.remember(ctx, 1)
}

// remember writes sandboxes of the fake driver into the ledger and to where the driver
// looks for them. The first has the name sandboxName.
func (h *home) remember(ctx context.Context, count int) error {
	opened, err := ledger.Open(h.stateDir())
	if err != nil {
		return err
	}
	sandboxes := make([]*plugin.Sandbox, count)
	for i := range sandboxes {
		intent := ledger.Intent{Name: fmt.Sprintf("%s-%d", sandboxName, i), Driver: "fake", Spec: []byte("{}"), ExpiresAt: time.Now().Add(time.Hour)}
		if i == 0 {
			intent.Name = sandboxName
		}
		record, err := opened.Begin(ctx, intent)
		if err != nil {
			return err
		}
		if record, err = opened.SetReady(ctx, record.ID, ledger.Ready{Handle: []byte(record.ID)}); err != nil {
			return err
		}
		sandboxes[i] = &plugin.Sandbox{
			ID: record.ID, Handle: record.Handle, Name: record.Name, Owner: opened.Owner(), State: plugin.StateRunning,
			CreatedAt: record.CreatedAt, ExpiresAt: record.ExpiresAt, Network: plugin.NetworkPolicy{Mode: plugin.NetworkNone},
		}
	}
	content, err := json.Marshal(sandboxes)
	if err != nil {
		return err
	}
	driverState := filepath.Join(h.stateDir(), "drivers", "fake")
	if err := os.MkdirAll(driverState, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(driverState, "sandboxes.json"), content, 0o600)
}
