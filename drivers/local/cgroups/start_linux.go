package cgroups

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Start starts a command in the group: not even its first instruction is outside. A
// group without directories is none.
func (g *Group) Start(cmd *exec.Cmd) error {
	var join []string
	for _, dir := range g.Dirs {
		if !dir.Unified {
			join = append(join, filepath.Join(dir.Path, "tasks"))
			continue
		}
		// There is but one hierarchy of version 2.
		opened, err := os.Open(dir.processes())
		if err != nil {
			return err
		}
		defer opened.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(opened.Fd())
	}
	if len(join) == 0 {
		return cmd.Start()
	}
	return onThrowawayThread(func() error {
		for _, tasks := range join {
			if err := write(tasks, strconv.Itoa(unix.Gettid())); err != nil {
				return err
			}
		}
		return cmd.Start()
	})
}

// onThrowawayThread runs do on a thread that ends afterwards, and its membership in
// groups of version 1 with it: there, a child starts in the groups of the thread that
// forks, and threads may be in groups of their own.
func onThrowawayThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// A process's first thread stays as long as the process. As long as it is
			// held here, another one is taken.
			defer runtime.UnlockOSThread()
			result <- onThrowawayThread(do)
			return
		}
		// Never unlocked: the thread ends with this goroutine.
		result <- do()
	}()
	return <-result
}
