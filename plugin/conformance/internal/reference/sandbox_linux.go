package reference

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandboxctl/sandboxctl/plugin"
)

//go:embed init.sh
var initScript string

// lock keeps creates apart, so that one request never makes two sandboxes.
func (d *Driver) lock() (unlock func(), err error) {
	lock := flock.New(filepath.Join(d.dir, "lock"))
	if err := lock.Lock(); err != nil {
		return nil, err
	}
	return func() { _ = lock.Unlock() }, nil
}

func (d *Driver) file(id string) string { return filepath.Join(d.dir, id+".json") }

func (d *Driver) save(r *record) error {
	content, err := r.encode()
	if err != nil {
		return err
	}
	temporary := d.file(r.ID) + "." + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, d.file(r.ID))
}

func (d *Driver) load() ([]*record, error) {
	files, err := filepath.Glob(filepath.Join(d.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := []*record{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // destroyed meanwhile
		}
		known := &record{}
		if err == nil {
			err = json.Unmarshal(content, known)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, known)
	}
	return all, nil
}

// find looks a sandbox up by its handle, or by its id when the host lost that.
func (d *Driver) find(ref plugin.Ref) (*record, error) {
	id := string(ref.Handle)
	if id == "" {
		id = ref.ID
	}
	all, err := d.load()
	if err != nil {
		return nil, err
	}
	for _, known := range all {
		if known.ID == id && known.alive() {
			return known, nil
		}
	}
	return nil, plugin.NotFoundf("sandbox %s does not exist", ref.ID)
}

// boot starts the sandbox's first process and waits until its root is there.
func (d *Driver) boot(ctx context.Context, r *record) error {
	root := filepath.Join(d.dir, r.ID+".root")
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	arguments := []string{"--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"}
	if !d.flaws.sharesNetwork {
		arguments = append(arguments, "--net")
	}
	arguments = append(arguments, "sh", "-c", initScript, "init", root)
	if d.flaws.sharesTmp {
		arguments = append(arguments, "/tmp")
	}
	command := exec.Command("unshare", arguments...)
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	// Its own session: the host ends the driver's process group.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	go func() { _ = command.Wait() }() // it ends with the sandbox or, orphaned, later
	r.PID, r.StartTime = command.Process.Pid, startTime(command.Process.Pid)
	if err := d.save(r); err != nil {
		return errors.Join(err, command.Process.Kill())
	}
	for {
		if inside, ok := r.inside(); ok && processName(inside) == "sleep" {
			return os.MkdirAll(r.path(inside, r.Workdir), 0o755)
		}
		if !r.alive() {
			return errors.New("the sandbox's first process ended")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// remove ends a sandbox and waits for its end.
func (d *Driver) remove(ctx context.Context, r *record) error {
	for r.alive() {
		if inside, ok := r.inside(); ok {
			_ = syscall.Kill(inside, syscall.SIGKILL)
		}
		_ = syscall.Kill(r.PID, syscall.SIGKILL)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return errors.Join(ignoreMissing(os.Remove(d.file(r.ID))), ignoreMissing(os.Remove(filepath.Join(d.dir, r.ID+".root"))))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveAll ends all sandboxes, those too that a defect has left.
func (d *Driver) RemoveAll(ctx context.Context, dir string) error {
	d.dir = dir
	all, err := d.load()
	for _, known := range all {
		err = errors.Join(err, d.remove(ctx, known))
	}
	return err
}

// alive says whether the process that holds the sandbox runs.
func (r *record) alive() bool {
	started := startTime(r.PID)
	return started != "" && started == r.StartTime
}

// inside is the sandbox's first process, as the machine numbers it.
func (r *record) inside() (pid int, ok bool) { return onlyChild(r.PID) }

// onlyChild is the child of a process that has one.
func onlyChild(parent int) (pid int, ok bool) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
	return pid, err == nil
}

// path is a path in the sandbox, seen from outside.
func (r *record) path(inside int, path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", inside), path)
}

// startTime is when a process started, empty when it has ended.
func startTime(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold anything.
	_, after, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(after)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

func processName(pid int) string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(content))
}
