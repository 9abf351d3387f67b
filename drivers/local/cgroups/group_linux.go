package cgroups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits are a group's; what is zero is not limited.
type Limits struct {
	CPUs        float64
	MemoryBytes uint64
}

func (l Limits) controllers() []Controller {
	var wanted []Controller
	if l.CPUs != 0 {
		wanted = append(wanted, CPU)
	}
	if l.MemoryBytes != 0 {
		wanted = append(wanted, Memory)
	}
	return wanted
}

// Group is the directories of one sandbox's control group, one in each hierarchy. It is
// kept with the sandbox, so that whoever comes after can remove it.
type Group struct {
	Dirs []Directory `json:"dirs"`
}

// Directory is a group in one hierarchy.
type Directory struct {
	Path        string       `json:"path"`
	Unified     bool         `json:"unified,omitempty"`
	Controllers []Controller `json:"controllers"`
}

// Plan says where the group of a name will be and makes nothing. The caller has seen
// that there is no obstacle.
func (s *Support) Plan(name string, limits Limits) *Group {
	group := &Group{}
	for _, controller := range limits.controllers() {
		at := s.places[controller]
		path := filepath.Join(at.dir, name)
		same := slices.IndexFunc(group.Dirs, func(dir Directory) bool { return dir.Path == path })
		if same < 0 {
			group.Dirs = append(group.Dirs, Directory{Path: path, Unified: at.unified, Controllers: []Controller{controller}})
			continue
		}
		group.Dirs[same].Controllers = append(group.Dirs[same].Controllers, controller)
	}
	return group
}

// Make makes the group and sets its limits. What a failure leaves, Remove removes.
func (g *Group) Make(limits Limits) error {
	for _, dir := range g.Dirs {
		if err := dir.make(); err != nil {
			return err
		}
		if err := dir.limit(limits); err != nil {
			return err
		}
	}
	return nil
}

func (d Directory) limit(limits Limits) error {
	for _, controller := range d.Controllers {
		for _, each := range d.settings(controller, limits) {
			err := write(filepath.Join(d.Path, each.file), each.value)
			if err != nil && (!each.optional || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
	}
	return nil
}

// processes is the directory of the group that holds the processes. In version 2 it is
// one below of that with the limits: systemd, which takes controllers away that it
// knows no use for, cannot do so as long as the group itself passes them on.
func (d Directory) processes() string {
	if d.Unified {
		return filepath.Join(d.Path, "run")
	}
	return d.Path
}

func (d Directory) make() error {
	var enable strings.Builder
	for _, controller := range d.Controllers {
		fmt.Fprintf(&enable, "+%s ", controller)
	}
	if d.Unified {
		if err := write(filepath.Join(filepath.Dir(d.Path), "cgroup.subtree_control"), enable.String()); err != nil {
			return err
		}
	}
	if err := os.Mkdir(d.Path, 0o755); err != nil {
		return err
	}
	if !d.Unified {
		return nil
	}
	if err := write(filepath.Join(d.Path, "cgroup.subtree_control"), enable.String()); err != nil {
		return err
	}
	return os.Mkdir(d.processes(), 0o755)
}

// setting is a value of a file in a group.
type setting struct {
	file, value string
	// optional settings are those of kernels that account for swap, or are new enough.
	optional bool
}

// cpuPeriod is the kernel's default, in microseconds.
const cpuPeriod = 100_000

// settings are those for one limit. Memory and swap have one limit together, or a
// sandbox could use the machine's swap on top of its memory.
func (d Directory) settings(controller Controller, limits Limits) []setting {
	// The kernel takes no quota below a millisecond.
	quota := max(int64(math.Ceil(limits.CPUs*cpuPeriod)), 1000)
	memory := strconv.FormatUint(min(limits.MemoryBytes, math.MaxInt64), 10)
	switch {
	case controller == CPU && d.Unified:
		return []setting{{"cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod), false}}
	case controller == CPU:
		return []setting{
			{"cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false},
			{"cpu.cfs_quota_us", strconv.FormatInt(quota, 10), false},
		}
	case d.Unified:
		// Half a sandbox is of no use: all of it ends together.
		return []setting{{"memory.max", memory, false}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true}}
	default:
		return []setting{{"memory.limit_in_bytes", memory, false}, {"memory.memsw.limit_in_bytes", memory, true}}
	}
}

// write never makes a file: the kernel makes those of control groups.
func write(file, value string) error {
	opened, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = opened.WriteString(value)
	return errors.Join(err, opened.Close())
}

// Remove kills what runs in the group and removes it. A group that is not there is
// removed already.
func (g *Group) Remove(ctx context.Context) error {
	for _, dir := range g.Dirs {
		for _, path := range slices.Compact([]string{dir.processes(), dir.Path}) {
			if err := remove(ctx, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func remove(ctx context.Context, dir string) error {
	for {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		if err := kill(dir); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		case <-time.After(5 * time.Millisecond):
			// The kernel takes a moment to notice that processes are dead.
		}
	}
}

// kill ends the processes of a group, except for the calling one, of which a thread may
// not have left yet.
func kill(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	for _, field := range strings.Fields(string(content)) {
		pid, err := strconv.Atoi(field)
		// Zero is a process of another namespace, which cannot be named from here.
		if err != nil || pid <= 0 || pid == os.Getpid() {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return fmt.Errorf("process %d in the control group %s cannot be killed: %w", pid, dir, err)
		}
	}
	return nil
}

// Kills returns how many processes of the group the kernel has killed for want of
// memory.
func (g *Group) Kills() int {
	for _, dir := range g.Dirs {
		if !slices.Contains(dir.Controllers, Memory) {
			continue
		}
		file := "memory.oom_control"
		if dir.Unified {
			file = "memory.events"
		}
		content, err := os.ReadFile(filepath.Join(dir.Path, file))
		if err != nil {
			return 0
		}
		for line := range bytes.Lines(content) {
			name, count, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
			if n, err := strconv.Atoi(count); err == nil && name == "oom_kill" {
				return n
			}
		}
	}
	return 0
}
