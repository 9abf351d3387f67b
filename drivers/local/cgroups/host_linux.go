// Package cgroups limits what a sandbox's processes use of this machine by control
// groups: of version 1, with a hierarchy for each controller, of version 2, with one for
// all, and of machines that have both. It makes them as root, or as an ordinary user
// where a part of a hierarchy was delegated to that user.
package cgroups

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Controller is a resource whose use can be limited.
type Controller string

// The controllers that sandboxes have limits for.
const (
	CPU    Controller = "cpu"
	Memory Controller = "memory"
)

// Host is a process's view of this machine.
type Host struct {
	// Proc is the process's directory below /proc.
	Proc string
	// Root says that the process is root's, to whom whole hierarchies belong.
	Root bool
	// Writable reports whether the process may write to a path.
	Writable func(path string) bool
}

// Self is the calling process's view.
func Self() Host {
	return Host{
		Proc: "/proc/self",
		Root: os.Geteuid() == 0,
		Writable: func(path string) bool {
			return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
		},
	}
}

// hierarchy is one mount of control groups.
type hierarchy struct {
	// mount is where it is mounted and root the group that is seen there.
	mount, root string
	unified     bool
	// controllers are those of version 1; for version 2, a file has them.
	controllers []string
	// own is the group of the process, or empty where it cannot be seen.
	own string
}

// hierarchies returns the mounts of control groups, each with the process's own group.
func (h Host) hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile(filepath.Join(h.Proc, "mountinfo"))
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile(filepath.Join(h.Proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for scanner := bufio.NewScanner(bytes.NewReader(mounts)); scanner.Scan(); {
		mounted, ok := parseMount(scanner.Text())
		if !ok {
			continue
		}
		mounted.own = mounted.directory(ownGroup(string(groups), mounted))
		found = append(found, mounted)
	}
	return found, nil
}

// parseMount reads a line of mountinfo, as proc(5) has it.
func parseMount(line string) (hierarchy, bool) {
	before, after, found := strings.Cut(line, " - ")
	first, last := strings.Fields(before), strings.Fields(after)
	if !found || len(first) < 6 || len(last) < 3 {
		return hierarchy{}, false
	}
	mounted := hierarchy{root: unescape(first[3]), mount: unescape(first[4])}
	switch last[0] {
	case "cgroup":
		mounted.controllers = strings.Split(last[2], ",")
	case "cgroup2":
		mounted.unified = true
	default:
		return hierarchy{}, false
	}
	return mounted, true
}

// unescape undoes what mountinfo does to the characters that separate its fields.
func unescape(field string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(field)
}

// ownGroup returns the process's group in a hierarchy. Lines are "7:cpu,cpuacct:/path",
// and "0::/path" for version 2.
func ownGroup(lines string, in hierarchy) string {
	for line := range strings.Lines(lines) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if in.unified && fields[0] == "0" && fields[1] == "" {
			return fields[2]
		}
		if !in.unified && slices.Contains(in.controllers, strings.Split(fields[1], ",")[0]) {
			return fields[2]
		}
	}
	return ""
}

// directory is where a group is seen, or empty where the mount does not show it, as in
// a container that has its own part of the tree mounted.
func (h hierarchy) directory(group string) string {
	if group == "" {
		return ""
	}
	below, err := filepath.Rel(h.root, group)
	if err != nil || below == ".." || strings.HasPrefix(below, "../") {
		return ""
	}
	return path.Join(h.mount, below)
}
