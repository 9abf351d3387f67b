//go:build linux

package modaldouble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

const cgroupMount = "/sys/fs/cgroup"

// cpuPeriod is the usual period of CPU quotas, in microseconds.
const cpuPeriod = 100_000

// cgroup holds a sandbox's processes to its limits. The zero value holds nothing.
type cgroup struct {
	dirs []string
	// leaf is the group in version 2, in which processes are started.
	leaf *os.File
	// tasks are the groups in version 1, which the starting thread joins.
	tasks []*os.File
}

// limit is one value to set in a group.
type limit struct {
	controller string // its mount in version 1
	files      map[string]string
}

// newCgroup makes a group with the limits of a sandbox: its requests alone limit
// nothing at Modal. The group is empty when there are none, or when this process
// may not make groups.
func newCgroup(name string, resources *pb.Resources) (*cgroup, error) {
	c := &cgroup{}
	_, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers"))
	unified := err == nil
	limits := limitsOf(resources, unified)
	if len(limits) == 0 || os.Geteuid() != 0 {
		return c, nil
	}
	for _, l := range limits {
		if err := c.add(name, l, unified); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			c.remove()
			return &cgroup{}, nil
		} else if err != nil {
			c.remove()
			return nil, fmt.Errorf("set the %s limit of %s: %w", l.controller, name, err)
		}
	}
	return c, nil
}

func limitsOf(resources *pb.Resources, unified bool) []limit {
	var limits []limit
	if megabytes := int64(resources.GetMemoryMbMax()); megabytes > 0 {
		bytes := strconv.FormatInt(megabytes<<20, 10)
		files := map[string]string{"memory.limit_in_bytes": bytes}
		if unified {
			files = map[string]string{"memory.max": bytes, "memory.swap.max": "0"}
		}
		limits = append(limits, limit{"memory", files})
	}
	if milli := int64(resources.GetMilliCpuMax()); milli > 0 {
		// A core of Modal's is two of the kernel's CPUs.
		quota := strconv.FormatInt(milli*2*cpuPeriod/1000, 10)
		files := map[string]string{"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": strconv.Itoa(cpuPeriod)}
		if unified {
			files = map[string]string{"cpu.max": quota + " " + strconv.Itoa(cpuPeriod)}
		}
		limits = append(limits, limit{"cpu", files})
	}
	return limits
}

func (c *cgroup) add(name string, l limit, unified bool) error {
	dir := filepath.Join(cgroupMount, l.controller, name)
	if unified {
		dir = filepath.Join(cgroupMount, name)
		// Fails where the controller is missing; the limit's file is then, too.
		_ = os.WriteFile(filepath.Join(cgroupMount, "cgroup.subtree_control"), []byte("+"+l.controller), 0o644)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	c.dirs = append(c.dirs, dir)
	for file, value := range l.files {
		// Without O_CREATE: a file that is not there is a controller that is not.
		if err := writeExisting(filepath.Join(dir, file), value); err != nil {
			return err
		}
	}
	if unified {
		if c.leaf != nil {
			return nil
		}
		leaf, err := os.Open(dir)
		c.leaf = leaf
		return err
	}
	tasks, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
	if err == nil {
		c.tasks = append(c.tasks, tasks)
	}
	return err
}

func writeExisting(path, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// join moves the calling thread into the groups of version 1.
func (c *cgroup) join() error {
	for _, tasks := range c.tasks {
		if _, err := tasks.WriteString("0"); err != nil {
			return fmt.Errorf("join a cgroup: %w", err)
		}
	}
	return nil
}

// remove removes the groups, as soon as the kernel has let go of the processes
// that were in them.
func (c *cgroup) remove() {
	for _, file := range c.tasks {
		_ = file.Close()
	}
	if c.leaf != nil {
		_ = c.leaf.Close()
	}
	for _, dir := range c.dirs {
		for range 100 {
			if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
