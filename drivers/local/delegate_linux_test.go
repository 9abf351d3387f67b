package local_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// delegation is control groups that were given to a user: one in each hierarchy.
type delegation struct {
	t testing.TB
	// dirs are the groups and entries the ones, in them or the same, for processes.
	dirs, entries []string
}

// delegate gives groups to a user for as long as the test takes. It needs root.
func delegate(t testing.TB, uid int) *delegation {
	t.Helper()
	given := &delegation{t: t}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		mount, kind := strings.Fields(before)[4], strings.Fields(after)
		controllers := strings.Split(kind[2], ",")
		if kind[0] == "cgroup2" {
			content, _ := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
			controllers = strings.Fields(string(content))
		} else if kind[0] != "cgroup" {
			continue
		}
		controllers = slices.DeleteFunc(controllers, func(name string) bool { return (name != "cpu" && name != "memory") || have[name] })
		if len(controllers) == 0 {
			continue
		}
		for _, name := range controllers {
			have[name] = true
		}
		given.add(mount, kind[0] == "cgroup2", controllers, uid)
	}
	if !have["cpu"] || !have["memory"] {
		t.Skip("this machine has no hierarchy with the controllers for cpu and memory")
	}
	return given
}

func (d *delegation) add(mount string, unified bool, controllers []string, uid int) {
	d.t.Helper()
	dir := filepath.Join(mount, "sandboxctl-test-"+newID())
	entry := dir
	if unified {
		d.enable(mount, controllers)
		entry = filepath.Join(dir, "session")
	}
	for _, each := range slices.Compact([]string{dir, entry}) {
		if err := os.Mkdir(each, 0o755); errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			d.t.Skipf("control groups cannot be made here: %v", err)
		} else if err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { removeGroup(d.t, each) })
		if each == dir && unified {
			d.enable(dir, controllers)
		}
		for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks"} {
			if err := os.Chown(filepath.Join(each, name), uid, uid); err != nil && !os.IsNotExist(err) {
				d.t.Fatal(err)
			}
		}
	}
	d.dirs, d.entries = append(d.dirs, dir), append(d.entries, entry)
}

func (d *delegation) enable(dir string, controllers []string) {
	d.t.Helper()
	content := "+" + strings.Join(controllers, " +")
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(content), 0o644); err != nil {
		d.t.Skipf("controllers cannot be enabled in %s: %v", dir, err)
	}
}

// join puts a process in.
func (d *delegation) join(pid int) {
	d.t.Helper()
	for _, entry := range d.entries {
		if err := os.WriteFile(filepath.Join(entry, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			d.t.Fatal(err)
		}
	}
}

// holds reports whether a group is in what was given.
func (d *delegation) holds(dir string) bool {
	return slices.ContainsFunc(d.dirs, func(given string) bool { return strings.HasPrefix(dir, given+"/") })
}

// removeGroup waits for the end of the processes that were in it.
func removeGroup(t testing.TB, dir string) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil {
			return
		}
		if time.Since(began) > time.Minute {
			t.Errorf("%s cannot be removed: %v", dir, err)
			return
		}
	}
}
