package local_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// TestSandboxesDieFirst uses up the memory of a machine, which here is a control group,
// from a sandbox without a limit, while a program of the user's there holds more.
func TestSandboxesDieFirst(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		given := delegate(t, uid)
		given.limitMemory(512 << 20)
		f := startDriver(t, uid)
		given.join(f.pid)
		ref := f.create()
		users := startHolder(t, given, 300<<20)

		done, err := f.tryExec(f.ctx(), ref, shell("echo started; exec python3 -c 'x = bytearray(1 << 30); print(len(x))'"))
		if done.stdout != "started\n" || err == nil && done.Code == 0 {
			t.Errorf("a guest had more memory than the machine: %+v, %v", done, err)
		}
		users.checkAlive()
		if _, err := f.Info(f.ctx()); err != nil {
			t.Errorf("the driver did not outlive it: %v", err)
		}
		if _, err := f.tryExec(f.ctx(), ref, shell("true")); err != nil && plugin.KindOf(err) != plugin.KindNotFound {
			t.Errorf("after it a command failed with %v", err)
		}
	})
}

// limitMemory makes the group a small machine without swap.
func (d *delegation) limitMemory(limit int) {
	d.t.Helper()
	for _, dir := range d.dirs {
		for _, file := range []struct {
			name  string
			value int
		}{
			{"memory.max", limit}, {"memory.swap.max", 0},
			{"memory.limit_in_bytes", limit}, {"memory.memsw.limit_in_bytes", limit},
		} {
			path := filepath.Join(dir, file.name)
			if _, err := os.Stat(path); err != nil {
				continue // of the other version, or of a machine without swap
			}
			if err := os.WriteFile(path, []byte(strconv.Itoa(file.value)), 0o644); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// holder is a program that holds memory until its input ends.
type holder struct {
	t      *testing.T
	output *bufio.Reader
	input  io.WriteCloser
}

// startHolder returns when it holds so many bytes in a group.
func startHolder(t *testing.T, in *delegation, bytes int) holder {
	t.Helper()
	const program = `import sys
sys.stdin.readline()
held = b"x" * int(sys.argv[1])
for line in sys.stdin:
    print("holds", len(held), flush=True)`
	cmd := exec.Command("python3", "-c", program, strconv.Itoa(bytes))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = input.Close(); _ = cmd.Wait() })
	in.join(cmd.Process.Pid)
	h := holder{t, bufio.NewReader(output), input}
	_, _ = io.WriteString(input, "in the group\n")
	h.checkAlive()
	return h
}

func (h holder) checkAlive() {
	h.t.Helper()
	_, _ = io.WriteString(h.input, "and?\n")
	if line, err := h.output.ReadString('\n'); err != nil {
		h.t.Fatalf("the user's program is no more: it said %q, %v", line, err)
	}
}
