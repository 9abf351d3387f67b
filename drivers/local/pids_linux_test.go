package local_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// mostProcesses is the limit of the tests' sandboxes.
const mostProcesses = 64

// counted reads a file of the control group in which gVisor counts a sandbox's processes.
func (f *fixture) counted(ref plugin.Ref, name string) int {
	f.t.Helper()
	dir, err := os.Open(filepath.Join(f.stateDir, "sandboxes", ref.ID, "runsc"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer dir.Close()
	connection, err := client.ConnectTo(fmt.Sprintf("/proc/self/fd/%d/runsc-%s.sock", dir.Fd(), ref.ID))
	if err != nil {
		f.t.Fatal(err)
	}
	defer connection.Close()
	args := control.CgroupsReadArgs{Args: []control.CgroupsReadArg{{File: control.CgroupControlFile{Controller: "pids", Path: "/" + ref.ID, Name: name}}}}
	var answer control.CgroupsResults
	if err := connection.Call(boot.CgroupsReadControlFiles, &args, &answer); err != nil {
		f.t.Fatal(err)
	}
	value, err := answer.Results[0].Unpack()
	if err != nil {
		f.t.Fatal(err)
	}
	number, err := strconv.Atoi(value)
	if err != nil {
		f.t.Fatal(err)
	}
	return number
}

// hostTasks counts the processes and threads of this machine that a sandbox takes.
func hostTasks(t *testing.T, sandbox int) int {
	t.Helper()
	children := map[int][]int{}
	statuses, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range statuses {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		_, after, _ := bytes.Cut(content, []byte(") "))
		fields := bytes.Fields(after)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		parent, _ := strconv.Atoi(string(fields[1]))
		children[parent] = append(children[parent], pid)
	}
	count := 0
	for left := []int{sandbox}; len(left) > 0; left = left[1:] {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", left[0]))
		if err == nil {
			count += len(threads)
		}
		left = append(left, children[left[0]]...)
	}
	return count
}

// bomb forks until it cannot, tells how often it could, and waits to be killed.
const bomb = `import os, signal, sys
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            signal.pause()
        n += 1
except OSError as e:
    print(e.errno, flush=True)
print(n, flush=True)
signal.pause()
`

func TestForkBombIsLimited(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create(func(spec *plugin.SandboxSpec) { spec.PIDs = mostProcesses })
		// It is a command of its own, since the shell of another could not fork.
		request := &plugin.ExecRequest{Argv: []string{"python3", "-c", bomb}}
		var said bytes.Buffer
		signals, ended, full := make(chan string, 1), make(chan error, 1), make(chan struct{})
		go func() {
			status, err := f.Exec(f.ctx(), ref, request, &plugin.ExecIO{Stderr: &said, Signals: signals, Stdout: writerFunc(func(data []byte) (int, error) {
				if said.Write(data); strings.Count(said.String(), "\n") == 2 {
					close(full)
				}
				return len(data), nil
			})})
			if err == nil && status.Signal != "KILL" {
				err = fmt.Errorf("the bomb ended with %+v", status)
			}
			ended <- err
		}()
		select {
		case <-full:
		case err := <-ended:
			t.Fatalf("the bomb ended early: %v, %q", err, said.String())
		}
		var code, forked int
		if _, err := fmt.Sscan(said.String(), &code, &forked); err != nil || code != 11 || forked < mostProcesses/2 || forked >= mostProcesses {
			t.Errorf("the bomb said %q, want EAGAIN (11) and a number", said.String())
		}
		if current := f.counted(ref, "pids.current"); current > mostProcesses {
			t.Errorf("there are %d processes and threads, at most %d are allowed", current, mostProcesses)
		}
		if tasks := hostTasks(t, f.sandboxPID(ref)); tasks > 6*mostProcesses {
			t.Errorf("the sandbox takes %d processes and threads of this machine", tasks)
		}
		// The helper has room: it says what is wrong, and does what needs no process.
		if done := f.exec(ref, &plugin.ExecRequest{Argv: []string{"true"}}); done.Code != 126 || !strings.Contains(done.stderr, "temporarily unavailable") {
			t.Errorf("one command more: %+v", done)
		}
		if _, err := f.Stat(f.ctx(), ref, "/workspace", false); err != nil {
			t.Errorf("a file: %v", err)
		}
		signals <- "KILL"
		if err := <-ended; err != nil {
			t.Error(err)
		}
		waitFor(t, "the end of the bomb", func() bool { return f.counted(ref, "pids.current") < mostProcesses/2 })
		if done := f.exec(ref, shell("echo alive; true | true")); done.stdout != "alive\n" {
			t.Errorf("afterwards: %+v", done)
		}
	})
}

// TestNoSandboxWithoutItsLimit kills the driver at all times of a create, which is then
// repeated.
func TestNoSandboxWithoutItsLimit(t *testing.T) {
	f := startDriver(t, 0)
	for delay := time.Duration(0); delay < 150*time.Millisecond; delay += 10 * time.Millisecond {
		spec := change(newSpec(), func(spec *plugin.SandboxSpec) { spec.PIDs = mostProcesses })
		f.createKilledAfter(spec, delay)
		ref := plugin.Ref{ID: spec.ID}
		if _, err := f.Create(f.ctx(), spec, &events{}); err != nil {
			t.Fatalf("repeated after %s: %v", delay, err)
		}
		if limit := f.counted(ref, "pids.max"); limit != mostProcesses {
			t.Errorf("repeated after %s: the limit is %d", delay, limit)
		}
		if _, err := f.Destroy(f.ctx(), ref); err != nil {
			t.Error(err)
		}
	}
}

// TestProcessLimitHolds is about a guest whose root wants to be rid of the limit.
func TestProcessLimitHolds(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create(func(spec *plugin.SandboxSpec) { spec.PIDs = mostProcesses })
		if done := f.exec(ref, shell("echo $GOMAXPROCS; tr '\\0' '\\n' </proc/1/environ | grep -c GOMAXPROCS=2")); done.stdout != "\n1\n" {
			t.Errorf("the helper's own variable: %+v", done)
		}
		for name, script := range map[string]string{
			"its file":    "echo max >/sys/fs/cgroup/pids.max || mkdir /sys/fs/cgroup/mine",
			"a mount":     "mkdir -p /mnt/c; mount -t cgroup2 none /mnt/c",
			"a namespace": "mkdir -p /mnt/c; unshare -Ur --mount --propagation unchanged mount -t cgroup2 none /mnt/c",
			"version 1":   "mkdir -p /mnt/c; unshare -Ur --mount --propagation unchanged mount -t cgroup -o pids none /mnt/c",
			"a remount":   "unshare -Ur --mount --propagation unchanged mount -o remount,bind,rw /sys",
			"a new mount": `python3 -c 'import ctypes, os; fd = ctypes.CDLL(None, use_errno=True).syscall(430, b"cgroup2", 0); os._exit(fd < 0)'`,
		} {
			if done := f.exec(ref, shell(script)); done.Code == 0 {
				t.Errorf("%s: %+v", name, done)
			}
		}
		// The limit of a user does not hold root, who can be another user each time; the
		// limit of the sandbox does.
		_, err := f.tryExec(f.ctx(), ref, &plugin.ExecRequest{Timeout: 3 * time.Second, Argv: []string{"python3", "-c", `import os, resource, signal
resource.setrlimit(resource.RLIMIT_NPROC, (resource.getrlimit(resource.RLIMIT_NPROC)[1],) * 2)
for uid in range(2000, 2500):
    try:
        if os.fork() == 0:
            os.setuid(uid)
            signal.pause()
    except OSError:
        pass
`}})
		if err != nil {
			t.Logf("its helper did not live through it: %v", err)
		}
		if done, err := f.tryExec(f.ctx(), ref, shell("echo alive")); err != nil && plugin.KindOf(err) != plugin.KindUnavailable {
			t.Errorf("a command in the full sandbox: %+v, %v", done, err)
		}
		if peak := f.counted(ref, "pids.peak"); peak > mostProcesses || peak < mostProcesses/2 {
			t.Errorf("there were %d processes and threads, at most %d are allowed", peak, mostProcesses)
		}
	})
}
