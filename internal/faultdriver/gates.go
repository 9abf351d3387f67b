package faultdriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Step is a moment in a call at which a test can hold the driver.
type Step string

const (
	// StepConfigure is before the driver has answered anything.
	StepConfigure Step = "configure"
	// StepCreate is before anything was made, StepMade after that and before the handle
	// is told, and StepTold before the sandbox is.
	StepCreate Step = "create"
	StepMade   Step = "made"
	StepTold   Step = "told"
	// StepDestroy is before anything was removed, and StepDestroyed after it.
	StepDestroy   Step = "destroy"
	StepDestroyed Step = "destroyed"
	// StepExec, StepRead and StepWrite are before a command, a file or an archive is
	// touched.
	StepExec  Step = "exec"
	StepRead  Step = "read"
	StepWrite Step = "write"
	// StepList is before the listing is made, and StepInspect before a look at one.
	StepList    Step = "list"
	StepInspect Step = "inspect"
	// StepRenewed is after the lease was moved.
	StepRenewed Step = "renewed"
)

// reachedExt ends the name of the file that says that the driver waits at a gate.
const reachedExt = ".reached"

// Gates lets the other side of a test close gates in a directory, which the driver is
// told in the setting "gates". It works across processes.
type Gates struct{ Dir string }

// Close lets every driver wait at a step from now on.
func (g Gates) Close(step Step) error {
	return os.WriteFile(filepath.Join(g.Dir, string(step)), nil, 0o600)
}

// Reached reports whether a driver came to a closed gate.
func (g Gates) Reached(step Step) bool {
	_, err := os.Stat(filepath.Join(g.Dir, string(step)+reachedExt))
	return err == nil
}

// Open lets drivers pass again.
func (g Gates) Open(step Step) error {
	name := filepath.Join(g.Dir, string(step))
	return errors.Join(removeIfThere(name), removeIfThere(name+reachedExt))
}

func removeIfThere(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// pass waits while the gate of a step is closed, or until the context ends.
func (g Gates) pass(ctx context.Context, step Step) error {
	if g.Dir == "" {
		return nil
	}
	gate := filepath.Join(g.Dir, string(step))
	for told := false; ; told = true {
		if _, err := os.Stat(gate); err != nil {
			return nil
		}
		if !told {
			if err := os.WriteFile(gate+reachedExt, nil, 0o600); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}
