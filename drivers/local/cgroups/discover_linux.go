package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Obstacle is why a controller cannot be used, and what would make it usable.
type Obstacle struct {
	Reason, Fix string
}

// Support is where groups can be made, and why not elsewhere.
type Support struct {
	places    map[Controller]place
	obstacles map[Controller]Obstacle
}

// place is a group below which others can be made.
type place struct {
	dir     string
	unified bool
}

// Discover looks for a place for each controller and changes nothing.
func Discover(host Host) *Support {
	support := &Support{places: map[Controller]place{}, obstacles: map[Controller]Obstacle{}}
	mounted, err := host.hierarchies()
	for _, controller := range []Controller{CPU, Memory} {
		if err != nil {
			support.obstacles[controller] = Obstacle{"the control groups of this process cannot be read: " + err.Error(), "mount /proc"}
			continue
		}
		found, obstacle := host.place(mounted, controller)
		if obstacle != nil {
			support.obstacles[controller] = *obstacle
			continue
		}
		support.places[controller] = found
	}
	return support
}

// Obstacle returns why a controller cannot be used; ok says that it can.
func (s *Support) Obstacle(controller Controller) (obstacle Obstacle, ok bool) {
	_, ok = s.places[controller]
	return s.obstacles[controller], ok
}

func (h Host) place(mounted []hierarchy, controller Controller) (place, *Obstacle) {
	obstacle := &Obstacle{
		fmt.Sprintf("no hierarchy of control groups here has the controller %q", controller),
		"mount control groups, and do not disable the controller on the kernel's command line",
	}
	for _, each := range mounted {
		var found *place
		var why *Obstacle
		switch {
		case each.unified && has(filepath.Join(each.mount, "cgroup.controllers"), controller):
			found, why = h.unifiedPlace(each, controller)
		case slices.Contains(each.controllers, string(controller)):
			found, why = h.legacyPlace(each)
		default:
			continue
		}
		if found != nil {
			return *found, nil
		}
		obstacle = why
	}
	return place{}, obstacle
}

// legacyPlace is for version 1: root takes the top of the tree, since the group that it
// is in may belong to a session that ends earlier than the sandbox. A user takes the
// group that it is in, where that was given to the user.
func (h Host) legacyPlace(in hierarchy) (*place, *Obstacle) {
	dir := in.own
	if h.Root {
		dir = in.mount
	}
	if dir != "" && h.Writable(dir) && h.Writable(filepath.Join(dir, "cgroup.procs")) {
		return &place{dir: dir}, nil
	}
	if h.Root {
		return nil, readOnly(in.mount)
	}
	return nil, &Obstacle{
		"an ordinary user may not make control groups in " + in.mount,
		"start it in a control group that was given to this user, in each hierarchy; or run sandboxctl as root",
	}
}

// unifiedPlace is for version 2. A user takes the highest group that is the user's own
// on the way up from the one that it is in: only below of that may its processes move.
func (h Host) unifiedPlace(in hierarchy, controller Controller) (*place, *Obstacle) {
	if kernel, old := beforeCloneIntoGroup(); old {
		return nil, &Obstacle{"Linux " + kernel + " cannot start a process in a control group", "use Linux 5.7 or newer"}
	}
	if h.Root {
		if !h.manages(in.mount) {
			return nil, readOnly(in.mount)
		}
		if !enables(in.mount, controller) {
			return nil, &Obstacle{
				fmt.Sprintf("the control group %s holds processes, so that its groups cannot have the controller %q", in.mount, controller),
				"move those processes to a group below and enable the controller: echo +" + string(controller) + " > " + filepath.Join(in.mount, "cgroup.subtree_control"),
			}
		}
		return &place{in.mount, true}, nil
	}
	var highest *place
	for dir := in.own; dir != "" && h.manages(dir); dir = filepath.Dir(dir) {
		if has(filepath.Join(dir, "cgroup.controllers"), controller) && enables(dir, controller) {
			highest = &place{dir, true}
		}
		if dir == in.mount {
			break
		}
	}
	if highest == nil {
		return nil, notDelegated(controller)
	}
	return highest, nil
}

func readOnly(mount string) *Obstacle {
	return &Obstacle{
		"the control groups in " + mount + " are read-only, as in a container",
		"run on a machine, or in a container, with writable control groups",
	}
}

func notDelegated(controller Controller) *Obstacle {
	return &Obstacle{
		fmt.Sprintf("the controller %q is not delegated to this user in the control group that this process runs in", controller),
		"as root, write \"[Service]\" and \"Delegate=cpu cpuset io memory pids\" to /etc/systemd/system/user@.service.d/delegate.conf, " +
			"run systemctl daemon-reload and log in again; then start with: systemd-run --user --scope sandboxctl ... (or run sandboxctl as root)",
	}
}

// manages reports whether groups can be made and filled below a group of version 2.
func (h Host) manages(dir string) bool {
	return h.Writable(dir) && h.Writable(filepath.Join(dir, "cgroup.procs")) && h.Writable(filepath.Join(dir, "cgroup.subtree_control"))
}

// enables reports whether the groups below of dir have a controller or can be given it:
// only the top of the tree may have groups with controllers and processes at once. The
// top is the one that has no type.
func enables(dir string, controller Controller) bool {
	if has(filepath.Join(dir, "cgroup.subtree_control"), controller) {
		return true
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); os.IsNotExist(err) {
		return true
	}
	processes, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && len(processes) == 0
}

// has reports whether a file lists a controller.
func has(file string, controller Controller) bool {
	content, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(content)), string(controller))
}

// beforeCloneIntoGroup reports whether the kernel lacks CLONE_INTO_CGROUP.
func beforeCloneIntoGroup() (release string, old bool) {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "", false
	}
	release = unix.ByteSliceToString(name.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return release, false
	}
	return release, major < 5 || (major == 5 && minor < 7)
}
