//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanLimit is how long a driver may outlive sandboxctl, in milliseconds.
const orphanLimit = 2000

// measureKill kills sandboxctl in the middle of an exec, the way the kernel does when it
// is out of memory, and waits for its driver.
func measureKill(ctx context.Context, l *lab) ([]row, error) {
	local, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	left := 0
	variants := []variant{{name: "local driver", run: func(ctx context.Context) ([]float64, error) {
		elapsed, err := local.orphan(ctx)
		if err != nil {
			return nil, err
		}
		sockets, err := countSockets(local.socketDir())
		left += sockets
		return one(milliseconds(elapsed), err)
	}}}
	measured, err := interleave(ctx, l.transfers, variants)
	if err != nil {
		return nil, err
	}
	result := rows("SIGKILL of sandboxctl until its driver is gone", unitTime, variants, measured, 0)
	wanted := atMost(orphanLimit, unitTime, result[0].values)
	wanted.text += fmt.Sprintf(", no socket left (%d are)", left)
	wanted.met = wanted.met && left == 0
	result[0].budget = wanted
	return result, nil
}

// orphan returns how long a driver lives on after its sandboxctl was killed.
func (h *home) orphan(ctx context.Context) (time.Duration, error) {
	cmd := h.command(ctx, "exec", "--shell", sandboxName, "--", "echo started; exec sleep 60")
	output, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		return 0, fmt.Errorf("the command did not start: %w", err)
	}
	driver := driverOf(cmd.Process.Pid)
	if driver == 0 {
		return 0, errors.New("the driver's process was not found")
	}
	handle, err := unix.PidfdOpen(driver, 0)
	if err != nil {
		return 0, fmt.Errorf("following the driver: %w", err)
	}
	defer unix.Close(handle)
	begin := time.Now()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	err = awaitExit(handle, 10*orphanLimit)
	return time.Since(begin), err
}

// awaitExit waits for a process's end; the limit is in milliseconds.
func awaitExit(pidfd, limit int) error {
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, limit)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case ready == 0:
			return fmt.Errorf("the driver still runs %d ms after its host was killed", limit)
		default:
			return nil
		}
	}
}

func countSockets(dir string) (count int, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type()&fs.ModeSocket != 0 {
			count++
		}
		return err
	})
	return count, err
}
