package cgroups

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a tree of files like that of control groups, as a process sees it.
type machine struct {
	// mounts are lines of mountinfo and groups those of the process's cgroup file. A %
	// stands for the directory of the tree.
	mounts, groups string
	files          map[string]string
	root           bool
	// writable are the directories that the process owns, with all below.
	writable []string
}

func (m machine) host(t *testing.T) (host Host, dir string) {
	t.Helper()
	dir = t.TempDir()
	proc := filepath.Join(dir, "proc")
	if err := os.Mkdir(proc, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"proc/mountinfo": m.mounts, "proc/cgroup": m.groups}
	for name, content := range m.files {
		files[name] = content
	}
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(content, "%", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Host{Proc: proc, Root: m.root, Writable: func(path string) bool {
		for _, own := range m.writable {
			if below, err := filepath.Rel(filepath.Join(dir, own), path); err == nil && !strings.HasPrefix(below, "..") {
				return true
			}
		}
		return false
	}}, dir
}

const (
	unifiedMount = "30 20 0:26 / %/cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	legacyMounts = "1 1 0:1 / %/cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n2 1 0:2 / %/cg/memory rw - cgroup cgroup rw,memory\n"
	userService  = "cg/user.slice/user-1000.slice/user@1000.service"
)

// unifiedGroup is the files of a group that is not the top of the tree.
func unifiedGroup(dir, controllers, enabled, processes string) map[string]string {
	return map[string]string{
		dir + "/cgroup.controllers": controllers, dir + "/cgroup.subtree_control": enabled,
		dir + "/cgroup.procs": processes, dir + "/cgroup.type": "domain\n",
	}
}

func together(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, each := range all {
		for name, content := range each {
			sum[name] = content
		}
	}
	return sum
}

// top is the files of the top of the tree, which has no type.
func top(controllers string) map[string]string {
	return map[string]string{"cg/cgroup.controllers": controllers, "cg/cgroup.subtree_control": "", "cg/cgroup.procs": "1\n"}
}

func TestDiscover(t *testing.T) {
	systemd := func(controllers string) map[string]string {
		return together(top("cpuset cpu io memory pids\n"),
			unifiedGroup("cg/user.slice", "cpu memory pids\n", "cpu memory pids\n", ""),
			unifiedGroup("cg/user.slice/user-1000.slice", "cpu memory pids\n", controllers, ""),
			unifiedGroup(userService, controllers, controllers, ""),
			unifiedGroup(userService+"/app.slice", controllers, controllers, ""),
			unifiedGroup(userService+"/app.slice/run-1.scope", controllers, "", "77\n"),
			unifiedGroup("cg/user.slice/user-1000.slice/session-3.scope", controllers, "", "78\n"))
	}
	scope := "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n"
	for name, test := range map[string]struct {
		machine
		// cpu and memory are places, or parts of a reason after an exclamation mark.
		cpu, memory string
	}{
		"version 2, root": {
			machine{mounts: unifiedMount, groups: "0::/user.slice/session-1.scope\n", files: top("cpu memory\n"), root: true, writable: []string{"cg"}},
			"cg", "cg",
		},
		"version 2, root, without memory": {
			machine{mounts: unifiedMount, groups: "0::/\n", files: top("cpu\n"), root: true, writable: []string{"cg"}},
			"cg", "!no hierarchy",
		},
		"version 2, root of a container": {
			machine{mounts: unifiedMount, groups: "0::/\n", files: unifiedGroup("cg", "cpu memory\n", "", "1\n7\n"), root: true, writable: []string{"cg"}},
			"!holds processes", "!holds processes",
		},
		"version 2, root of a container that was made ready": {
			machine{mounts: unifiedMount, groups: "0::/init\n", files: unifiedGroup("cg", "cpu memory\n", "memory\n", ""), root: true, writable: []string{"cg"}},
			"cg", "cg",
		},
		"version 2, read-only": {
			machine{mounts: unifiedMount, groups: "0::/\n", files: top("cpu memory\n"), root: true},
			"!read-only", "!read-only",
		},
		"version 2, delegated": {
			machine{mounts: unifiedMount, groups: scope, files: systemd("cpu memory pids\n"), writable: []string{userService}},
			userService, userService,
		},
		"version 2, memory delegated": {
			machine{mounts: unifiedMount, groups: scope, files: systemd("memory pids\n"), writable: []string{userService}},
			"!not delegated", userService,
		},
		"version 2, a session beside what is delegated": {
			machine{mounts: unifiedMount, groups: "0::/user.slice/user-1000.slice/session-3.scope\n", files: systemd("cpu memory pids\n"), writable: []string{userService}},
			"!not delegated", "!not delegated",
		},
		"version 1, root": {
			machine{mounts: legacyMounts, groups: "3:cpu,cpuacct:/user\n4:memory:/user/1\n", root: true, writable: []string{"cg"}},
			"cg/cpu,cpuacct", "cg/memory",
		},
		"version 1, user": {
			machine{mounts: legacyMounts, groups: "3:cpu,cpuacct:/user\n4:memory:/user/1\n"},
			"!ordinary user", "!ordinary user",
		},
		"version 1, delegated for memory": {
			machine{mounts: legacyMounts, groups: "3:cpu,cpuacct:/user\n4:memory:/user/1\n", writable: []string{"cg/memory/user/1"}},
			"!ordinary user", "cg/memory/user/1",
		},
		"version 1, a part of the tree": {
			machine{
				mounts:   "1 1 0:1 /box/a %/cg/cpu rw - cgroup cgroup rw,cpu\n2 1 0:2 /box/a %/cg/memory rw - cgroup cgroup rw,memory\n",
				groups:   "3:cpu:/box/a/b\n4:memory:/elsewhere\n",
				writable: []string{"cg/cpu/b", "cg/memory"},
			},
			"cg/cpu/b", "!ordinary user",
		},
		"both versions": {
			machine{
				mounts: strings.ReplaceAll(unifiedMount, "%/cg", "%/cg/unified") + "2 1 0:2 / %/cg/memory rw - cgroup cgroup rw,memory\n",
				groups: "4:memory:/a\n0::/\n", root: true, writable: []string{"cg"},
				files: map[string]string{"cg/unified/cgroup.controllers": "cpu\n", "cg/unified/cgroup.subtree_control": "", "cg/unified/cgroup.procs": "1\n"},
			},
			"cg/unified", "cg/memory",
		},
		"nothing mounted": {machine{groups: "0::/\n", root: true}, "!no hierarchy", "!no hierarchy"},
		"a path with a space": {
			machine{mounts: "2 1 0:2 / %/c\\040g rw - cgroup cgroup rw,memory\n", groups: "1:memory:/\n", root: true, writable: []string{"c g"}},
			"!no hierarchy", "c g",
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, dir := test.host(t)
			support := Discover(host)
			for controller, want := range map[Controller]string{CPU: test.cpu, Memory: test.memory} {
				obstacle, ok := support.Obstacle(controller)
				if reason, refused := strings.CutPrefix(want, "!"); refused {
					if ok || !strings.Contains(obstacle.Reason, reason) || obstacle.Fix == "" {
						t.Errorf("%s: got %+v, %v, want %q", controller, obstacle, support.places[controller], reason)
					}
					continue
				}
				if got := support.places[controller].dir; !ok || got != filepath.Join(dir, want) {
					t.Errorf("%s: got %q, %+v, want %q", controller, got, obstacle, want)
				}
			}
		})
	}
}

func TestPlan(t *testing.T) {
	support := &Support{places: map[Controller]place{CPU: {"/cg", true}, Memory: {"/cg", true}}}
	both := support.Plan("x", Limits{CPUs: 1, MemoryBytes: 1})
	if len(both.Dirs) != 1 || both.Dirs[0].Path != "/cg/x" || len(both.Dirs[0].Controllers) != 2 {
		t.Errorf("one hierarchy: %+v", both)
	}
	support.places[Memory] = place{"/memory", false}
	if apart := support.Plan("x", Limits{CPUs: 1, MemoryBytes: 1}); len(apart.Dirs) != 2 || apart.Dirs[1].Path != "/memory/x" {
		t.Errorf("two hierarchies: %+v", apart)
	}
	if one := support.Plan("x", Limits{MemoryBytes: 1}); len(one.Dirs) != 1 || one.Dirs[0].Path != "/memory/x" {
		t.Errorf("only memory: %+v", one)
	}
}

func TestMemoryLimit(t *testing.T) {
	for name, test := range map[string]struct {
		machine
		want uint64
	}{
		"version 1": {machine{
			mounts: legacyMounts, groups: "3:cpu,cpuacct:/a\n4:memory:/b\n",
			files: map[string]string{"cg/memory/b/memory.limit_in_bytes": "1048576\n", "cg/memory/memory.limit_in_bytes": "9223372036854771712\n"},
		}, 1 << 20},
		"version 2, in the group above": {machine{
			mounts: unifiedMount, groups: "0::/sandboxctl-x/run\n",
			files: map[string]string{"cg/sandboxctl-x/run/memory.max": "max\n", "cg/sandboxctl-x/memory.max": "2097152\n"},
		}, 2 << 20},
		"none": {machine{mounts: unifiedMount, groups: "0::/\n"}, 1<<64 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			host, _ := test.host(t)
			if got := MemoryLimit(host); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
