//go:build unix

package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is sandboxctl on a real terminal, with everything it showed.
type terminal struct {
	t       *testing.T
	file    *os.File
	command *exec.Cmd

	mu    sync.Mutex
	shown bytes.Buffer
	read  sync.WaitGroup
}

func startTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return openTerminal(t, &exec.Cmd{Path: self, Args: append([]string{"sandboxctl"}, args...), Env: env})
}

// openTerminal starts any program on a terminal.
func openTerminal(t *testing.T, command *exec.Cmd) *terminal {
	t.Helper()
	file, err := pty.StartWithSize(command, &pty.Winsize{Rows: 33, Cols: 77})
	if err != nil {
		t.Fatal(err)
	}
	terminal := &terminal{t: t, file: file, command: command}
	terminal.read.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, err := file.Read(buffer)
			terminal.mu.Lock()
			terminal.shown.Write(buffer[:n])
			terminal.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = file.Close()
		terminal.read.Wait()
	})
	return terminal
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *terminal) await(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(s.text(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited for %q, the terminal shows %q", text, s.text())
		}
	}
}

func (s *terminal) typed(text string) {
	s.t.Helper()
	if _, err := s.file.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *terminal) exitCode() int {
	s.t.Helper()
	done := make(chan struct{})
	go func() { _ = s.command.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		s.t.Fatalf("sandboxctl has not ended; the terminal shows %q", s.text())
	}
	return s.command.ProcessState.ExitCode()
}

func (s *terminal) isRaw() bool {
	s.t.Helper()
	state, err := unix.IoctlGetTermios(int(s.file.Fd()), tcgets)
	if err != nil {
		s.t.Fatal(err)
	}
	return state.Lflag&unix.ECHO == 0
}

// localEnv is the surroundings of one test with the local driver.
func localEnv(t *testing.T) []string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("gVisor runs on Linux only")
	}
	drivers := buildDrivers(t, module+"/drivers/local/cmd/sandboxctl-driver-local", module+"/drivers/local/cmd/sandboxctl-guest")
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	content := fmt.Sprintf("driver: local\ndrivers:\n  local: {path: %s}\n", filepath.Join(drivers, "sandboxctl-driver-local"))
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "SANDBOXCTL_CONFIG="+config, "SANDBOXCTL_STATE_DIR="+filepath.Join(dir, "state"), "TERM=xterm")
	t.Cleanup(func() { run(t, env, "rm", "-f", "--all") })
	return env
}

func run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := &exec.Cmd{Path: self, Args: append([]string{"sandboxctl"}, args...), Env: env, Stdout: &stdout, Stderr: &stderr}
	if err := command.Run(); err != nil {
		t.Fatalf("sandboxctl %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

func TestTerminal(t *testing.T) {
	env := localEnv(t)
	run(t, env, "create", "--name", "box")

	t.Run("a shell survives a failing command and follows the size", func(t *testing.T) {
		shell := startTerminal(t, env, "shell", "box")
		shell.typed("stty size; false; echo ali''ve\n")
		shell.await("33 77")
		shell.await("alive")
		if !shell.isRaw() {
			t.Error("the terminal is not raw while the shell runs")
		}
		if err := pty.Setsize(shell.file, &pty.Winsize{Rows: 44, Cols: 111}); err != nil {
			t.Fatal(err)
		}
		shell.typed("until stty size | grep '44 1''11'; do sleep 0.1; done\n")
		shell.await("44 111")
		// Ctrl-C is a key for the command, not the end of sandboxctl.
		shell.typed("sleep 1000 || echo inter''rupted\n")
		shell.await("sleep 1000")
		time.Sleep(300 * time.Millisecond) // the sleep has no way to say that it runs
		shell.typed("\x03")
		shell.typed("echo back''again\n")
		shell.await("backagain")
		shell.typed("exit 7\n")
		if code := shell.exitCode(); code != 7 {
			t.Errorf("exit code %d", code)
		}
		if shell.isRaw() {
			t.Error("the terminal was left raw")
		}
	})

	t.Run("the terminal is given back when the driver dies", func(t *testing.T) {
		held := startTerminal(t, env, "exec", "-it", "box", "--", "sh", "-c", "echo run''ning; sleep 1000")
		held.await("running")
		killChildren(t, held.command.Process.Pid)
		if code := held.exitCode(); code != 125 {
			t.Errorf("exit code %d, the terminal shows %q", code, held.text())
		}
		if held.isRaw() {
			t.Error("the terminal was left raw")
		}
		held.await("driver local")
	})
}

// killChildren kills a process's children.
func killChildren(t *testing.T, parent int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var pid, ppid int
		var state string
		rest := string(data[bytes.LastIndexByte(data, ')')+2:])
		if _, err := fmt.Sscan(string(data), &pid); err != nil {
			continue
		}
		if _, err := fmt.Sscan(rest, &state, &ppid); err == nil && ppid == parent {
			if unix.Kill(pid, unix.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		t.Fatal("sandboxctl has no children to kill")
	}
}
