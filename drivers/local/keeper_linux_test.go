package local_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// patience is how long a test waits for what takes milliseconds on a quiet machine.
const patience = time.Minute

// until waits for something to come true.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// keepers returns the keeper processes of a sandbox.
func (f *fixture) keepers(ref plugin.Ref) []int {
	var found []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		if bytes.HasPrefix(line, []byte("sandboxctl-keeper\x00"+filepath.Join(f.stateDir, "sandboxes", ref.ID))) {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			found = append(found, pid)
		}
	}
	return found
}

// keeper returns the sandbox's only keeper.
func (f *fixture) keeper(ref plugin.Ref) int {
	f.t.Helper()
	found := f.keepers(ref)
	if len(found) != 1 {
		f.t.Fatalf("the sandbox has the keepers %v", found)
	}
	return found[0]
}

func (f *fixture) isGone(ref plugin.Ref) bool {
	_, err := f.Inspect(f.ctx(), ref)
	return plugin.KindOf(err) == plugin.KindNotFound
}

// expiresIn makes a spec's lease end.
func expiresIn(d time.Duration) func(*plugin.SandboxSpec) {
	return func(spec *plugin.SandboxSpec) { spec.ExpiresAt = time.Now().Add(d) }
}

func opened(spec *plugin.SandboxSpec) { spec.Network.Mode = plugin.NetworkOpen }

func TestLeaseEnds(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		began := time.Now()
		ref := f.create(expiresIn(2 * time.Second))
		// A command does not hold the end up.
		_, err := f.tryExec(f.ctx(), ref, shell("exec sleep 54321"))
		if took := time.Since(began); plugin.KindOf(err) != plugin.KindNotFound || took < 2*time.Second {
			t.Errorf("the command ended after %s: %v", took, err)
		}
		until(t, "the sandbox is gone", func() bool { return f.isGone(ref) })
		// Nothing is left that a list would have to remove.
		until(t, "its remains are gone", func() bool { return len(leftovers(f.stateDir)) == 0 })
	})
}

func TestLeaseEndsWithoutDriver(t *testing.T) {
	t.Parallel()
	f := startDriver(t, otherUser)
	f.create(expiresIn(time.Second))
	f.process.Kill()
	until(t, "the remains are gone", func() bool { return len(leftovers(f.stateDir)) == 0 })
}

func TestRenewMovesTheEnd(t *testing.T) {
	t.Parallel()
	f := startDriver(t, 0)
	// Long enough for a busy machine to come to the renewals.
	const first = 10 * time.Second
	longer, never := f.create(expiresIn(first)), f.create(expiresIn(first))
	firstEnd := time.Now().Add(first)
	shorter := f.create(expiresIn(time.Hour))
	if _, err := f.Renew(f.ctx(), longer, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Renew(f.ctx(), never, time.Time{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the keeper that is not needed any more is gone", func() bool { return len(f.keepers(never)) == 0 })
	if _, err := f.Renew(f.ctx(), shorter, time.Now().Add(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	until(t, "the sandbox with the shorter lease is gone", func() bool { return f.isGone(shorter) })
	until(t, "the first end is past", func() bool { return time.Now().After(firstEnd.Add(time.Second)) })
	for _, ref := range []plugin.Ref{longer, never} {
		f.exec(ref, shell("true"))
	}
	// One that never ended gets an end again.
	if _, err := f.Renew(f.ctx(), never, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	until(t, "the sandbox with the new lease is gone", func() bool { return f.isGone(never) })
}

func TestIdleTimeout(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		// What is done in between has to be done in less, on a busy machine too.
		const limit = 5 * time.Second
		ref := f.create(func(spec *plugin.SandboxSpec) { spec.IdleTimeout = limit })
		// What it left behind does not count as use.
		f.exec(ref, shell("sleep 54321 >/dev/null 2>&1 &"))
		// A command that runs for longer than the limit is not idleness, and neither is
		// a look at a file.
		f.exec(ref, shell("sleep 6"))
		time.Sleep(time.Second)
		if _, err := f.Stat(f.ctx(), ref, "/etc/passwd", false); err != nil {
			t.Fatal(err)
		}
		used := time.Now()
		until(t, "the idle sandbox is gone", func() bool { return f.isGone(ref) })
		if idle := time.Since(used); idle < limit-100*time.Millisecond {
			t.Errorf("it was idle for only %s", idle)
		}
	})
}

func TestKeeperIsAlone(t *testing.T) {
	t.Parallel()
	f := startDriver(t, 0)
	ref := f.create(opened, expiresIn(time.Hour))
	process := "/proc/" + strconv.Itoa(f.keeper(ref))
	for _, fd := range []string{"0", "1", "2"} {
		// It lets go of the driver's pipes a moment after it was told to go on.
		until(t, "descriptor "+fd+" is /dev/null", func() bool {
			target, _ := os.Readlink(process + "/fd/" + fd)
			return target == "/dev/null"
		})
	}
	if dir, _ := os.Readlink(process + "/cwd"); dir != "/" {
		t.Errorf("its working directory is %s", dir)
	}
	if environ, _ := os.ReadFile(process + "/environ"); len(environ) > 0 {
		t.Errorf("its environment is %q", environ)
	}
}

func TestLostKeeper(t *testing.T) {
	t.Parallel()
	f := startDriver(t, otherUser)
	ref := f.create(opened, expiresIn(time.Hour))
	const probe = `python3 - <<-'E'
		import socket
		s = socket.socket()
		s.settimeout(2)
		try:
		    s.connect(("192.0.0.1", 53))
		    print("reached")
		except OSError as e:
		    print("not reached")
	E`
	if done := f.exec(ref, shell(probe)); done.stdout != "reached\n" {
		t.Fatalf("before: %q %q", done.stdout, done.stderr)
	}
	if err := syscall.Kill(f.keeper(ref), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the keeper is dead", func() bool { return len(f.keepers(ref)) == 0 })
	if done := f.exec(ref, shell(probe)); done.stdout != "not reached\n" {
		t.Errorf("without keeper: %q", done.stdout)
	}
	seen, err := f.Inspect(f.ctx(), ref)
	if err != nil || !strings.Contains(seen.StateReason, "keeper") || !strings.Contains(seen.StateReason, "network") {
		t.Errorf("inspect: %+v, %v", seen, err)
	}
	if _, err := f.AccessLog(f.ctx(), ref); plugin.KindOf(err) != plugin.KindUnavailable {
		t.Errorf("access log: %v", err)
	}
	// The time is kept again from the next renewal on; the network stays away.
	if _, err := f.Renew(f.ctx(), ref, time.Now().Add(15*time.Second)); err != nil {
		t.Fatal(err)
	}
	if done := f.exec(ref, shell(probe)); done.stdout != "not reached\n" {
		t.Errorf("with a new keeper: %q", done.stdout)
	}
	until(t, "the sandbox is gone", func() bool { return f.isGone(ref) })
}

// TestLinkOutlivesItsKeeper looks at the sandbox's descriptors from outside. gVisor takes
// the end of its link, when it is busy as that comes, for packets without end.
func TestLinkOutlivesItsKeeper(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		ref := f.create(opened)
		before := endedSockets(t, f.sandboxPID(ref))
		if err := syscall.Kill(f.keeper(ref), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "the keeper is dead", func() bool { return len(f.keepers(ref)) == 0 })
		if after := endedSockets(t, f.sandboxPID(ref)); after != before {
			t.Errorf("the other end is gone of %d sockets of the sandbox, before of %d", after, before)
		}
	})
}

// TestHeldLinkIsOutOfReach has root of the guest take what its first process has open.
func TestHeldLinkIsOutOfReach(t *testing.T) {
	t.Parallel()
	f := startDriver(t, 0)
	ref := f.create(opened)
	done := f.exec(ref, shell(`python3 - <<-'E'
		import ctypes, os, socket
		pidfd_getfd = 438
		fd = ctypes.CDLL(None).syscall(pidfd_getfd, os.pidfd_open(1), 0, 0)
		try:
		    print(socket.socket(fileno=fd).recvmsg(1, 100, socket.MSG_DONTWAIT))
		except OSError as e:
		    print(e.errno)
	E`))
	if done.stdout != "22\n" {
		t.Errorf("got %q %q", done.stdout, done.stderr)
	}
}

// endedSockets counts the sockets of a process whose other end is gone.
func endedSockets(t *testing.T, pid int) int {
	t.Helper()
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	files, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	sockets, ended := 0, 0
	for _, file := range files {
		number, _ := strconv.Atoi(file.Name())
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err == unix.EBADF {
			continue // closed since; the link stays
		}
		if err != nil {
			t.Fatalf("descriptor %d: %v", number, err)
		}
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && kind == unix.SOCK_SEQPACKET {
			sockets++
			state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			if _, err := unix.Poll(state, 0); err != nil || state[0].Revents != 0 {
				ended++
			}
		}
		_ = unix.Close(fd)
	}
	if sockets == 0 {
		t.Fatal("the sandbox has no link")
	}
	return ended
}

// TestKeeperAnswersAtTheEnd holds the sandbox's lock, as a renewal does, while its lease
// ends: the keeper, which wants the lock then, has to answer all the same.
func TestKeeperAnswersAtTheEnd(t *testing.T) {
	t.Parallel()
	f := startDriver(t, 0)
	ref := f.create(opened, expiresIn(8*time.Second))
	end := time.Now().Add(8 * time.Second)
	dir, err := os.Open(filepath.Join(f.stateDir, "sandboxes", ref.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	until(t, "the lease is over", func() bool { return time.Now().After(end.Add(2 * time.Second)) })
	if _, err := f.AccessLog(f.ctx(), ref); err != nil {
		t.Error(err)
	}
	_ = dir.Close()
	until(t, "the sandbox is gone", func() bool { return f.isGone(ref) })
}

func TestKeeperEndsWithItsSandbox(t *testing.T) {
	t.Parallel()
	f := startDriver(t, 0)
	killed, removed := f.create(opened), f.create(opened)
	if left := f.keepers(killed); len(left) != 1 {
		t.Fatalf("keepers: %v", left)
	}
	content, err := os.ReadFile(filepath.Join(f.stateDir, "sandboxes", killed.ID, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the keeper of the killed sandbox is gone", func() bool { return len(f.keepers(killed)) == 0 })
	if _, err := f.Destroy(f.ctx(), removed); err != nil {
		t.Fatal(err)
	}
	if left := f.keepers(removed); len(left) != 0 {
		t.Errorf("the removed sandbox has the keepers %v", left)
	}
	// Who needs none has none.
	if left := f.keepers(f.create()); len(left) != 0 {
		t.Errorf("a sandbox without end or network has the keepers %v", left)
	}
}

func TestImpossiblePolicies(t *testing.T) {
	f := startDriver(t, 0)
	for _, cidr := range []string{"127.0.0.0/8", "169.254.169.254/32", "::1/128", "224.0.0.0/4"} {
		spec := newSpec()
		spec.Network = plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{cidr}}
		_, err := f.Create(f.ctx(), spec, &events{})
		if plugin.KindOf(err) != plugin.KindRefused {
			t.Errorf("%s: %v", cidr, err)
		}
	}
}

// TestRepeatedCreateIsWhole kills the driver at moments of a create and asks again: what
// was left half made must not come back as a sandbox without its network.
func TestRepeatedCreateIsWhole(t *testing.T) {
	t.Parallel()
	f := startDriver(t, 0)
	for delay := 5 * time.Millisecond; delay < 250*time.Millisecond; delay += 20 * time.Millisecond {
		spec := newSpec()
		opened(spec)
		f.createKilledAfter(spec, delay)
		made, err := f.Create(f.ctx(), spec, &events{})
		if err != nil {
			t.Fatalf("killed after %s: %v", delay, err)
		}
		ref := plugin.Ref{ID: made.ID, Handle: made.Handle}
		done := f.exec(ref, shell(`python3 -c 'import socket; socket.create_connection(("192.0.0.1", 53), 10)'`))
		if done.Code != 0 || made.StateReason != "" || len(f.keepers(ref)) != 1 {
			t.Errorf("killed after %s: %+v, %q, keepers %v", delay, done, made.StateReason, f.keepers(ref))
		}
		if _, err := f.Destroy(f.ctx(), ref); err != nil {
			t.Fatal(err)
		}
	}
}
