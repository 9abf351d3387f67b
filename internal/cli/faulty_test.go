//go:build unix

package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// faulty is the surroundings of a test with the driver that misbehaves on purpose.
type faulty struct {
	t      *testing.T
	dir    string
	binary string
	env    []string
}

// newFaulty gives the driver a link of its own, since start faults go by its name, and
// writes a backend's fault into the configuration.
func newFaulty(t *testing.T, drivers, backendFault string) *faulty {
	t.Helper()
	f := &faulty{t: t, dir: t.TempDir()}
	f.binary = filepath.Join(f.dir, "sandboxctl-driver-faulty")
	if err := os.Link(filepath.Join(drivers, "sandboxctl-driver-faulty"), f.binary); err != nil {
		t.Fatal(err)
	}
	f.configure(backendFault)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "SANDBOXCTL_") {
			f.env = append(f.env, variable)
		}
	}
	sockets := filepath.Join(f.dir, "s")
	if err := os.Mkdir(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	f.env = append(f.env, "SANDBOXCTL_CONFIG="+filepath.Join(f.dir, "config.yaml"),
		"SANDBOXCTL_STATE_DIR="+filepath.Join(f.dir, "state"), "TMPDIR="+sockets, "XDG_RUNTIME_DIR=")
	t.Cleanup(f.nothingIsLeft)
	return f
}

func (f *faulty) configure(backendFault string) {
	f.t.Helper()
	content := fmt.Sprintf("driver: faulty\ndrivers:\n  faulty: {path: %s, fault: %q}\n", f.binary, backendFault)
	if backendFault == "" {
		content = fmt.Sprintf("driver: faulty\ndrivers:\n  faulty: {path: %s}\n", f.binary)
	}
	if err := os.WriteFile(filepath.Join(f.dir, "config.yaml"), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// result is what one run of sandboxctl did.
type result struct {
	code           int
	stdout, stderr string
	took           time.Duration
	json           struct {
		OK     bool
		Reason string
		Error  struct{ Class, Message string }
		Errors []struct{ Class, Message string }
	}
}

func (f *faulty) run(args ...string) *result {
	f.t.Helper()
	return invoke(f.t, f.env, args...)
}

func invoke(t *testing.T, env []string, args ...string) *result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := &exec.Cmd{Path: self, Args: append([]string{"sandboxctl"}, args...), Env: env, Stdout: &stdout, Stderr: &stderr}
	start := time.Now()
	err = command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := &result{code: command.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(start)}
	if slices.Contains(args, "--json") {
		if err := json.Unmarshal(stdout.Bytes(), &r.json); err != nil || strings.Count(r.stdout, "\n") != 1 {
			t.Fatalf("stdout is not one JSON object (%v): %q", err, r.stdout)
		}
	}
	return r
}

// nothingIsLeft checks that no driver process and no socket outlive a test.
func (f *faulty) nothingIsLeft() {
	deadline := time.Now().Add(5 * time.Second)
	for {
		left := f.processes()
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			f.t.Errorf("processes are left: %q", left)
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = filepath.WalkDir(filepath.Join(f.dir, "s"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type()&os.ModeSocket != 0 {
			f.t.Errorf("a socket is left: %s", path)
		}
		return nil
	})
}

// processes returns the command lines of processes that run the test's driver.
func (f *faulty) processes() []string {
	var found []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if data, err := os.ReadFile(path); err == nil && bytes.HasPrefix(data, []byte(f.binary)) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}

func (f *faulty) want(r *result, code int, class string) {
	f.t.Helper()
	if r.code != code || class != "" && r.json.Error.Class != class {
		f.t.Errorf("exit %d, class %q, want %d, %q\nstdout: %s\nstderr: %s", r.code, r.json.Error.Class, code, class, r.stdout, r.stderr)
	}
	if strings.ContainsAny(r.stderr, "\x1b\x07") {
		f.t.Errorf("stderr holds terminal escapes: %q", r.stderr)
	}
}

func TestFaultyDrivers(t *testing.T) {
	drivers := buildDrivers(t, module+"/internal/faultdriver/cmd/sandboxctl-driver-faulty")
	t.Run("start", func(t *testing.T) { testStartFaults(t, drivers) })
	t.Run("backend", func(t *testing.T) { testBackendFaults(t, drivers) })
	t.Run("create", func(t *testing.T) { testCreateFaults(t, drivers) })
	t.Run("exec", func(t *testing.T) { testExecFaults(t, drivers) })
	t.Run("destroy", func(t *testing.T) { testDestroyFaults(t, drivers) })
	t.Run("files", func(t *testing.T) { testFileFaults(t, drivers) })
	t.Run("archives", func(t *testing.T) { testArchiveFaults(t, drivers) })
	t.Run("text", func(t *testing.T) { testHostileText(t, drivers) })
}

// parallel runs a case beside others; most of them wait.
func parallel(t *testing.T, name string, do func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		do(t)
	})
}

func testStartFaults(t *testing.T, drivers string) {
	for fault, words := range map[string]string{
		"start-noise":    "Welcome to the faulty driver!",
		"start-exit":     "status 3",
		"start-protocol": "protocol 99",
		"start-hangs":    "15",
	} {
		parallel(t, fault, func(t *testing.T) {
			f := newFaulty(t, drivers, "")
			if err := os.WriteFile(f.binary+".fault", []byte(fault), 0o600); err != nil {
				t.Fatal(err)
			}
			r := f.run("create", "--network", "open", "--json")
			f.want(r, 4, "setup")
			if message := r.json.Error.Message; !strings.Contains(message, words) || !strings.Contains(message, "faulty") || strings.Contains(message, "\n") {
				t.Errorf("message %q does not say %q", message, words)
			}
			if ledger := f.run("ls", "--offline", "-q"); ledger.stdout != "" {
				t.Errorf("the ledger remembers %q", ledger.stdout)
			}
		})
	}
	for _, fault := range []string{"start-slow", "start-grandchild"} {
		parallel(t, fault, func(t *testing.T) {
			f := newFaulty(t, drivers, "")
			if err := os.WriteFile(f.binary+".fault", []byte(fault), 0o600); err != nil {
				t.Fatal(err)
			}
			r := f.run("run", "--network", "open", "--", "echo", "works")
			f.want(r, 0, "")
			if r.stdout != "works\n" || r.took > 10*time.Second {
				t.Errorf("stdout %q after %s", r.stdout, r.took)
			}
		})
	}
	parallel(t, "not executable", func(t *testing.T) {
		f := newFaulty(t, drivers, "")
		if err := os.Remove(f.binary); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.binary, []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.want(f.run("create", "--json"), 4, "setup")
	})
}

func testBackendFaults(t *testing.T, drivers string) {
	for fault, want := range map[string]struct {
		code  int
		class string
	}{"auth-missing": {4, "auth"}, "backend-down": {1, "unavailable"}} {
		parallel(t, fault, func(t *testing.T) {
			f := newFaulty(t, drivers, fault)
			f.want(f.run("create", "--network", "open", "--json"), want.code, want.class)
			if ledger := f.run("ls", "--offline", "-q"); ledger.stdout != "" {
				t.Errorf("a failed create is remembered: %q", ledger.stdout)
			}
			// A failure never looks like an empty list.
			listed := f.run("ls", "--all", "--json")
			f.want(listed, 7, "partial")
			if len(listed.json.Errors) != 1 || listed.json.Errors[0].Class != want.class {
				t.Errorf("errors: %+v", listed.json.Errors)
			}
			f.want(f.run("gc", "--json"), 7, "partial")
		})
	}
	parallel(t, "list-bad-row", func(t *testing.T) {
		f := newFaulty(t, drivers, "list-bad-row")
		f.want(f.run("create", "--network", "open", "--name", "box"), 0, "")
		r := f.run("ls", "-q")
		f.want(r, 0, "")
		if r.stdout != "box\n" || !strings.Contains(r.stderr, "warning:") {
			t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
		}
	})
	parallel(t, "list-long", func(t *testing.T) {
		f := newFaulty(t, drivers, "list-long")
		f.want(f.run("create", "--network", "open", "--name", "box"), 0, "")
		if r := f.run("ls", "-q"); r.stdout != "box\n" {
			t.Errorf("others' sandboxes are listed: %d bytes", len(r.stdout))
		}
		if r := f.run("ls", "-q", "--all"); strings.Count(r.stdout, "\n") < 20_000 {
			t.Errorf("%d of 20,000 sandboxes are listed", strings.Count(r.stdout, "\n"))
		}
	})
}

func testCreateFaults(t *testing.T, drivers string) {
	parallel(t, "create-leaves", func(t *testing.T) { testCreateLeaves(t, drivers) })
	for fault, want := range map[string]struct {
		code int
		// class may be empty where only the code is agreed on.
		class string
	}{
		"create-fails":      {code: 1},
		"create-lies":       {code: 1},
		"create-dies":       {code: 1, class: "driver_error"},
		"create-ends-early": {code: 1, class: "lost"},
		"create-other":      {code: 1, class: "lost"},
	} {
		parallel(t, fault, func(t *testing.T) {
			f := newFaulty(t, drivers, "")
			f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault="+fault, "--json"), want.code, want.class)
			// The name is free again at once.
			f.want(f.run("create", "--network", "open", "--name", "box", "--json"), 0, "")
			f.want(f.run("rm", "box"), 0, "")
			if fault == "create-lies" {
				return
			}
			f.noSandboxes()
		})
	}
}

// What cannot be removed stays known, and its name taken, until it can.
func testCreateLeaves(t *testing.T, drivers string) {
	f := newFaulty(t, drivers, "")
	r := f.run("create", "--network", "open", "--name", "box", "--opt", "fault=create-leaves", "--json")
	f.want(r, 1, "unavailable")
	if !strings.Contains(r.json.Error.Message, "may still exist") {
		t.Errorf("message %q", r.json.Error.Message)
	}
	f.want(f.run("create", "--network", "open", "--name", "box", "--json"), 1, "unavailable")
	f.want(f.run("gc", "--json"), 7, "partial")
	if listed := f.run("ls", "-q"); listed.stdout != "box\n" {
		t.Errorf("listed: %q", listed.stdout)
	}
}

// noSandboxes checks that a gc leaves neither the backend nor the ledger anything.
func (f *faulty) noSandboxes() {
	f.t.Helper()
	f.want(f.run("gc", "--json"), 0, "")
	if r := f.run("ls", "--all", "-q"); r.code != 0 || r.stdout != "" {
		f.t.Errorf("left at the backend or in the ledger: %q %s", r.stdout, r.stderr)
	}
}

func testExecFaults(t *testing.T, drivers string) {
	for fault, want := range map[string]struct{ class, reason string }{
		"exec-panics":     {"driver_error", "lost"},
		"exec-dies":       {"driver_error", "lost"},
		"exec-no-exit":    {"lost", "lost"},
		"exec-two-exits":  {"lost", "lost"},
		"exec-no-reason":  {"lost", "lost"},
		"exec-unsure":     {"indeterminate", "lost"},
		"exec-gone":       {"not_found", "sandbox_gone"},
		"exec-long-error": {"", ""},
	} {
		parallel(t, fault, func(t *testing.T) {
			f := newFaulty(t, drivers, "")
			f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault="+fault), 0, "")
			r := f.run("exec", "--json", "box", "--", "echo", "hello")
			f.want(r, 125, want.class)
			if want.reason != "" && r.json.Reason != want.reason {
				t.Errorf("reason %q, want %q", r.json.Reason, want.reason)
			}
			if len(r.stdout) > 64<<10 {
				t.Errorf("%d bytes of JSON", len(r.stdout))
			}
			f.want(f.run("rm", "box"), 0, "")
		})
	}
	parallel(t, "exec-large-frame", func(t *testing.T) {
		f := newFaulty(t, drivers, "")
		f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault=exec-large-frame"), 0, "")
		r := f.run("exec", "box", "--", "true")
		f.want(r, 0, "")
		if len(r.stdout) < 5_000_000 {
			t.Errorf("%d bytes arrived", len(r.stdout))
		}
		f.want(f.run("rm", "box"), 0, "")
	})
	parallel(t, "exec-hangs", func(t *testing.T) {
		f := newFaulty(t, drivers, "")
		f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault=exec-hangs"), 0, "")
		r := f.run("exec", "--json", "--timeout", "1", "box", "--", "true")
		f.want(r, 124, "")
		if r.json.Reason != "timed_out" || r.took > 20*time.Second {
			t.Errorf("reason %q after %s", r.json.Reason, r.took)
		}
		f.want(f.run("rm", "box"), 0, "")
	})
}

func testDestroyFaults(t *testing.T, drivers string) {
	parallel(t, "destroy-fails", func(t *testing.T) {
		f := newFaulty(t, drivers, "")
		f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault=destroy-fails"), 0, "")
		f.want(f.run("create", "--network", "open", "--name", "good"), 0, "")
		f.want(f.run("rm", "-f", "box", "good", "--json"), 7, "partial")
		// What could not be removed is still known, and the other one is gone.
		if r := f.run("ls", "-q"); r.stdout != "box\n" {
			t.Errorf("listed: %q", r.stdout)
		}
		f.want(f.run("rm", "-f", "box", "--json"), 1, "")
		r := f.run("run", "--network", "open", "--opt", "fault=destroy-fails", "--", "sh", "-c", "exit 3")
		f.want(r, 3, "")
		if !strings.Contains(r.stderr, "could not be removed") {
			t.Errorf("stderr %q", r.stderr)
		}
	})
}

func testFileFaults(t *testing.T, drivers string) {
	for _, fault := range []string{"read-fails", "read-cut", "read-corrupt"} {
		parallel(t, fault, func(t *testing.T) {
			f := newFaulty(t, drivers, "")
			f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault="+fault), 0, "")
			source, target := filepath.Join(f.dir, "source"), filepath.Join(f.dir, "target")
			if err := os.WriteFile(source, bytes.Repeat([]byte("0123456789"), 100_000), 0o600); err != nil {
				t.Fatal(err)
			}
			f.want(f.run("cp", source, "box:file"), 0, "")
			f.want(f.run("cp", "--json", "box:file", target), 1, "")
			if left, _ := filepath.Glob(filepath.Join(f.dir, "*target*")); len(left) > 0 {
				t.Errorf("a failed copy left %q", left)
			}
			f.want(f.run("rm", "box"), 0, "")
		})
	}
	parallel(t, "write-fails", func(t *testing.T) {
		f := newFaulty(t, drivers, "")
		f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault=write-fails"), 0, "")
		f.want(f.run("cp", "--json", f.binary, "box:file"), 1, "path")
		f.want(f.run("rm", "box"), 0, "")
	})
}

// A hostile sandbox must not make a copy write anything outside its target.
func testArchiveFaults(t *testing.T, drivers string) {
	for _, fault := range []string{
		"archive-dot-dot", "archive-absolute", "archive-through-link", "archive-hard-link", "archive-device",
		"archive-duplicates", "archive-cut",
	} {
		parallel(t, fault, func(t *testing.T) {
			f := newFaulty(t, drivers, "")
			f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault="+fault), 0, "")
			f.want(f.run("exec", "--shell", "box", "--", "mkdir tree && echo good >tree/file"), 0, "")
			target := filepath.Join(f.dir, "out")
			if err := os.Mkdir(target, 0o700); err != nil {
				t.Fatal(err)
			}
			before, _ := filepath.Glob(filepath.Join(f.dir, "*"))
			r := f.run("cp", "--json", "box:tree", target)
			f.want(r, 1, "")
			after, _ := filepath.Glob(filepath.Join(f.dir, "*"))
			if !slices.Equal(before, after) {
				t.Errorf("outside the target: %q became %q", before, after)
			}
			f.want(f.run("rm", "box"), 0, "")
		})
	}
}

func testHostileText(t *testing.T, drivers string) {
	f := newFaulty(t, drivers, "")
	f.want(f.run("create", "--network", "open", "--name", "box", "--opt", "fault=hostile-text"), 0, "")
	for _, args := range [][]string{{"ls"}, {"inspect", "box"}, {"ls", "box:."}, {"exec", "box", "--", "true"}, {"doctor"}, {"driver", "info"}} {
		r := f.run(args...)
		if strings.ContainsAny(r.stdout+r.stderr, "\x1b\x07") {
			t.Errorf("%q shows terminal escapes: %q %q", args, r.stdout, r.stderr)
		}
	}
	f.want(f.run("rm", "box"), 0, "")
}
