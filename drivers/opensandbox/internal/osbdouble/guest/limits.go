//go:build linux

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Limits are what a sandbox may use at most; zero is no limit.
type Limits struct {
	MemoryBytes int64
	MilliCPUs   int64
}

// cgroup is a set of control groups, one where the host has a unified hierarchy.
type cgroup struct{ dirs []string }

// cpuPeriod is the time in which a quota of processor time is counted, in microseconds.
const cpuPeriod = 100_000

// limit makes control groups for a sandbox. They need root; without it limits are only recorded, and the tests
// that look at them have to be run elsewhere.
func limit(name string, l Limits) (*cgroup, error) {
	c := &cgroup{}
	if l == (Limits{}) || os.Geteuid() != 0 {
		return c, nil
	}
	quota := l.MilliCPUs * cpuPeriod / 1000
	var err error
	if _, e := os.Stat("/sys/fs/cgroup/cgroup.controllers"); e == nil {
		values := map[string]string{}
		if l.MemoryBytes > 0 {
			values["memory.max"], values["memory.swap.max"] = strconv.FormatInt(l.MemoryBytes, 10), "0"
		}
		if quota > 0 {
			values["cpu.max"] = fmt.Sprintf("%d %d", quota, cpuPeriod)
		}
		err = c.add(filepath.Join("/sys/fs/cgroup", name), values)
	} else {
		if l.MemoryBytes > 0 {
			err = c.add(filepath.Join("/sys/fs/cgroup/memory", name), map[string]string{"memory.limit_in_bytes": strconv.FormatInt(l.MemoryBytes, 10)})
		}
		if quota > 0 {
			err = errors.Join(err, c.add(filepath.Join("/sys/fs/cgroup/cpu", name), map[string]string{"cpu.cfs_quota_us": strconv.FormatInt(quota, 10)}))
		}
	}
	if err != nil {
		c.remove()
		return nil, fmt.Errorf("limit the sandbox: %w", err)
	}
	return c, nil
}

func (c *cgroup) add(dir string, values map[string]string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	c.dirs = append(c.dirs, dir)
	for name, value := range values {
		// The swap file is absent where swap is not accounted.
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil && !(name == "memory.swap.max" && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// join moves a process, and with it all that it starts, into the groups.
func (c *cgroup) join(pid int) error {
	for _, dir := range c.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// remove takes the groups away, after their last process has gone.
func (c *cgroup) remove() {
	for _, dir := range c.dirs {
		_ = os.Remove(dir)
	}
}
