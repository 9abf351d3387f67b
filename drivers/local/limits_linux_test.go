package local_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// claimed skips, loudly, where this machine cannot enforce limits; as root in CI it can.
func claimed(t *testing.T, f *fixture) {
	t.Helper()
	info, err := f.Info(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if !info.Capabilities.Spec.Memory || !info.Capabilities.Spec.CPUs {
		t.Skipf("the control groups of this machine cannot be written to: %+v", info.Capabilities.Spec)
	}
}

// limited asks for the limits that need control groups.
func limited(spec *plugin.SandboxSpec) { spec.MemoryBytes, spec.CPUs = 256<<20, 0.5 }

// groups returns the directories of a sandbox's control group.
func (f *fixture) groups(ref plugin.Ref) []string {
	f.t.Helper()
	sandbox, err := f.Inspect(f.ctx(), ref)
	if err != nil {
		f.t.Fatal(err)
	}
	var details struct {
		Cgroup struct{ Dirs []struct{ Path string } }
	}
	if err := json.Unmarshal(sandbox.Details, &details); err != nil {
		f.t.Fatal(err)
	}
	var dirs []string
	for _, dir := range details.Cgroup.Dirs {
		dirs = append(dirs, dir.Path)
	}
	if len(dirs) == 0 {
		f.t.Fatalf("the sandbox has no control group: %s", sandbox.Details)
	}
	return dirs
}

// firstOf returns the content of the first file there is.
func firstOf(t *testing.T, dirs []string, names ...string) string {
	t.Helper()
	for _, dir := range dirs {
		for _, name := range names {
			if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(content) > 0 {
				return strings.TrimSpace(string(content))
			}
		}
	}
	t.Errorf("none of %q has one of %q", dirs, names)
	return ""
}

func (f *fixture) checkLimits(ref plugin.Ref) {
	f.t.Helper()
	t, dirs := f.t.(*testing.T), f.groups(ref)
	if quota := firstOf(t, dirs, "cpu.max", "cpu.cfs_quota_us"); !strings.HasPrefix(quota, "50000") {
		t.Errorf("the quota is %q", quota)
	}
	if memory := firstOf(t, dirs, "memory.max", "memory.limit_in_bytes"); memory != "268435456" {
		t.Errorf("the memory is %q", memory)
	}
	for _, dir := range dirs {
		inside := strings.Fields(firstOf(t, []string{dir}, "run/cgroup.procs", "cgroup.procs"))
		// The sandbox, its gofer, and what runs the guest's code.
		if want := strconv.Itoa(f.sandboxPID(ref)); !strings.Contains(" "+strings.Join(inside, " ")+" ", " "+want+" ") || len(inside) < 3 {
			t.Errorf("the sandbox's process %s is not in %s with others: %q", want, dir, inside)
		}
	}
}

func checkNoGroups(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("left behind: %s (%v)", dir, err)
		}
	}
}

// checkOutOfMemory uses up a limited sandbox.
func (f *fixture) checkOutOfMemory(ref plugin.Ref) {
	f.t.Helper()
	done := f.exec(ref, shell("echo started; exec python3 -c 'x = bytearray(1 << 30); print(len(x))'"))
	if done.Reason != plugin.ExitOOM || !done.SandboxTerminated || done.Code != 137 || done.stdout != "started\n" {
		f.t.Errorf("out of memory: %+v after %s", done, done.took)
	}
	if _, err := f.tryExec(f.ctx(), ref, shell("true")); plugin.KindOf(err) != plugin.KindNotFound {
		f.t.Errorf("after the end: %v", err)
	}
}

func TestLimits(t *testing.T) {
	f := startDriver(t, 0)
	claimed(t, f)
	ref := f.create(limited)
	f.checkLimits(ref)
	if seen := f.exec(ref, shell("grep MemTotal /proc/meminfo")); !strings.Contains(seen.stdout, " 262144 kB") {
		t.Errorf("the guest sees %q", seen.stdout)
	}
	dirs := f.groups(ref)
	f.checkOutOfMemory(ref)
	if _, err := f.Destroy(f.ctx(), ref); err != nil {
		t.Error(err)
	}
	checkNoGroups(t, dirs)
}

// TestDelegatedLimits is an ordinary user's driver in a control group that was given to
// the user, as systemd does where it is told to.
func TestDelegatedLimits(t *testing.T) {
	given := delegate(t, otherUser)
	f := startDriver(t, otherUser)
	_, err := f.Create(f.ctx(), change(newSpec(), limited), &events{})
	if plugin.KindOf(err) != plugin.KindRefused || !strings.Contains(err.Error(), "--cpus") {
		t.Errorf("outside of the group: %v", err)
	}
	given.join(f.pid)
	info, err := f.Info(f.ctx())
	if err != nil || !info.Capabilities.Spec.CPUs || !info.Capabilities.Spec.Memory {
		t.Fatalf("got %+v, %v", info.Capabilities.Spec, err)
	}
	ref := f.create(limited)
	f.checkLimits(ref)
	dirs := f.groups(ref)
	for _, dir := range dirs {
		if !given.holds(dir) {
			t.Errorf("%s is not in what was given: %q", dir, given.dirs)
		}
	}
	f.checkOutOfMemory(ref)
	if _, err := f.Destroy(f.ctx(), ref); err != nil {
		t.Error(err)
	}
	checkNoGroups(t, dirs)
}

func change(spec *plugin.SandboxSpec, edit func(*plugin.SandboxSpec)) *plugin.SandboxSpec {
	edit(spec)
	return spec
}

// TestNoGroupIsLeft kills the driver at all times of a create.
func TestNoGroupIsLeft(t *testing.T) {
	f := startDriver(t, 0)
	claimed(t, f)
	known := f.create(limited)
	var parents []string
	for _, dir := range f.groups(known) {
		parents = append(parents, filepath.Dir(dir))
	}
	if _, err := f.Destroy(f.ctx(), known); err != nil {
		t.Fatal(err)
	}
	made := 0
	// A slow machine comes to the group later.
	for delay := time.Duration(0); delay < 60*time.Millisecond || made == 0 && delay < time.Second; delay += 3 * time.Millisecond {
		spec := change(newSpec(), limited)
		f.createKilledAfter(spec, delay)
		for _, parent := range parents {
			if _, err := os.Stat(filepath.Join(parent, "sandboxctl-"+spec.ID)); err == nil {
				made++
			}
		}
		if _, err := f.Destroy(f.ctx(), plugin.Ref{ID: spec.ID}); err != nil {
			t.Errorf("after %s: %v", delay, err)
		}
		for _, parent := range parents {
			checkNoGroups(t, []string{filepath.Join(parent, "sandboxctl-"+spec.ID)})
		}
	}
	if made == 0 {
		t.Error("the driver was never killed between making a group and the end of a create")
	}
}

// TestLimitsThatLeaveNothing are refused before anything is made.
func TestLimitsThatLeaveNothing(t *testing.T) {
	f := startDriver(t, 0)
	claimed(t, f)
	for name, edit := range map[string]func(*plugin.SandboxSpec){
		"--memory": func(spec *plugin.SandboxSpec) { spec.MemoryBytes = 1 << 20 },
		"--disk":   func(spec *plugin.SandboxSpec) { spec.DiskBytes = 4096 },
		"--pids":   func(spec *plugin.SandboxSpec) { spec.PIDs = 8 },
	} {
		_, err := f.Create(f.ctx(), change(newSpec(), edit), &events{})
		if plugin.KindOf(err) != plugin.KindInvalid || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHealth(t *testing.T) {
	asUsers(t, func(t *testing.T, uid int) {
		f := startDriver(t, uid)
		checks, err := f.CheckHealth(f.ctx())
		if err != nil || len(checks) < 4 {
			t.Fatalf("got %+v, %v", checks, err)
		}
		for _, check := range checks {
			if check.Status == plugin.CheckFailed || check.Name == "" || check.Detail == "" || (check.Status != plugin.CheckOK && check.Fix == "") {
				t.Errorf("got %+v", check)
			}
			if check.Name == "limits" && !strings.Contains(check.Detail, "--pids, --disk") {
				t.Errorf("got %+v", check)
			}
		}
	})
}
