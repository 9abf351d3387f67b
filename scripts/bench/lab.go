//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// cleanupLimit is how long the removal of what was started may take.
const cleanupLimit = 30 * time.Second

// lab is where everything is measured: a directory for all files, and what the
// experiments share, each made when it is first wanted.
type lab struct {
	bin, dir string
	// runs and transfers are how often short and long commands are run.
	runs, transfers int

	fakeHome, localHome, idleHome *home

	bareRunsc    *runsc
	dockerEngine *docker
}

func newLab(ctx context.Context, wanted options) (*lab, error) {
	bin, err := filepath.Abs(wanted.bin)
	if err != nil {
		return nil, err
	}
	for _, program := range []string{"sandboxctl", localDriver} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return nil, fmt.Errorf("%s is missing in %s; run `make build`", program, bin)
		}
	}
	dir, err := os.MkdirTemp("", "sandboxctl-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{bin: bin, dir: dir, runs: wanted.runs, transfers: max(3, wanted.runs/5)}
	if err := l.buildFakeDriver(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) buildFakeDriver(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", l.path("sandboxctl-driver-fake"), "./scripts/bench/fakedriver")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the fake driver: %w: %s", err, output)
	}
	return nil
}

// close ends and removes all that was started. Commands under way have ended: they run
// on the context whose end leads here.
func (l *lab) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	var failures []error
	for _, home := range []*home{l.localHome, l.idleHome} {
		if home != nil {
			failures = append(failures, home.run(ctx, "rm", "-f", "--all"))
		}
	}
	if l.bareRunsc != nil {
		failures = append(failures, l.bareRunsc.close(ctx))
	}
	if l.dockerEngine != nil {
		failures = append(failures, l.dockerEngine.close(ctx))
	}
	return errors.Join(append(failures, os.RemoveAll(l.dir))...)
}

// timed runs a command to its end and returns how long that took. Its stdin and stdout
// are empty unless they are set.
func (l *lab) timed(cmd *exec.Cmd) (time.Duration, error) {
	return l.follow(cmd, func() {})
}

// follow is timed with something to do while the command runs.
func (l *lab) follow(cmd *exec.Cmd, meanwhile func()) (time.Duration, error) {
	// Not a pipe: a sandbox that goes on running keeps it open.
	complaints, err := os.CreateTemp(l.dir, "stderr-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(complaints.Name())
	defer complaints.Close()
	cmd.Stderr = complaints
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	meanwhile()
	err = cmd.Wait()
	elapsed := time.Since(begin)
	if err != nil {
		text, _ := os.ReadFile(complaints.Name())
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(text)))
	}
	return elapsed, nil
}
