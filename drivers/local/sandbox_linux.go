package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/sandboxctl/sandboxctl/drivers/local/cgroups"
	"github.com/sandboxctl/sandboxctl/drivers/local/images"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// defaultWorkdir is where commands start when the user names no directory.
const defaultWorkdir = "/workspace"

// validID keeps what comes from a ref, and becomes a path and an argument, harmless.
var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// sandbox is one sandbox's directory. All that the driver remembers is in there.
type sandbox struct {
	id, dir string
}

func (d *Driver) sandbox(id string) sandbox {
	return sandbox{id: id, dir: filepath.Join(d.sandboxes, id)}
}

func (s sandbox) recordFile() string { return filepath.Join(s.dir, "sandbox.json") }

// rootfs is the lowest layer of the guest's root, and upper holds what is written.
func (s sandbox) rootfs() string { return filepath.Join(s.dir, "rootfs") }
func (s sandbox) upper() string  { return filepath.Join(s.dir, "upper") }

// runscRoot is where runsc keeps its state and its socket.
func (s sandbox) runscRoot() string { return filepath.Join(s.dir, "runsc") }

// pidFile holds the id of the process that is the sandbox. runsc writes it, under the
// other name, which it keeps until the sandbox is whole: one whose create came to its
// end before is a dead one to everybody, and removed.
func (s sandbox) pidFile() string         { return filepath.Join(s.dir, "pid") }
func (s sandbox) startingPIDFile() string { return s.pidFile() + ".starting" }

// logFile holds what runsc says about a create that fails, and panicFile the last
// words of a sandbox that crashed.
func (s sandbox) logFile() string   { return filepath.Join(s.dir, "runsc.log") }
func (s sandbox) panicFile() string { return filepath.Join(s.dir, "panic.log") }

// record is what is kept about a sandbox.
type record struct {
	Spec plugin.SandboxSpec `json:"spec"`
	// Labels are the user's and sandboxctl's own.
	Labels map[string]string `json:"labels"`
	// Group is the control group of a sandbox that has limits which need one.
	Group *cgroups.Group `json:"group,omitempty"`
	// Nameservers are what the sandbox's keeper asks; empty for this machine's own.
	Nameservers []netip.AddrPort `json:"nameservers,omitempty"`
	// Image is what the sandbox was made from, unless its root is the host's.
	Image *images.Image `json:"image,omitempty"`
}

func (s sandbox) save(record *record) error {
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	// In $TMPDIR, renameio's choice, a killed driver's temporary file would stay for ever.
	return renameio.WriteFile(s.recordFile(), content, 0o600, renameio.WithTempDir(s.dir))
}

func (s sandbox) load() (*record, error) {
	content, err := os.ReadFile(s.recordFile())
	if err != nil {
		return nil, err
	}
	var loaded record
	if err := json.Unmarshal(content, &loaded); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", s.recordFile(), err)
	}
	return &loaded, nil
}

// pid returns the sandbox's process, or zero when it does not run. That the process
// is the sandbox's is seen from its arguments, so that a number that was given out
// again deceives nobody.
func (s sandbox) pid() int { return s.pidIn(s.pidFile()) }

func (s sandbox) pidIn(file string) int {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || !s.owns(pid) {
		return 0
	}
	return pid
}

// owns reports whether a process is one of runsc's for this sandbox, or its keeper. A
// zombie has no arguments and is none.
func (s sandbox) owns(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := bytes.Split(line, []byte{0})
	return (bytes.HasPrefix(args[0], []byte("runsc")) || string(args[0]) == KeeperName) &&
		slices.ContainsFunc(args, func(arg []byte) bool {
			return string(arg) == s.id || string(arg) == s.dir || strings.Contains(string(arg), s.dir+"/")
		})
}

// describe is the sandbox as the SDK has it.
func (s sandbox) describe(record *record) *plugin.Sandbox {
	described, ours := plugin.SandboxFromLabels(record.Labels)
	if !ours {
		described = &plugin.Sandbox{ID: s.id}
	}
	described.Handle = []byte(s.id)
	described.State = plugin.StateRunning
	if record.needsKeeper() && !s.kept(context.Background()) {
		described.StateReason = lostKeeper(record)
	}
	described.Network = record.Spec.Network
	described.Workdir = record.workdir()
	described.Image = record.Spec.Image
	details, err := json.Marshal(struct {
		Directory string         `json:"directory"`
		Pid       int            `json:"pid"`
		Group     *cgroups.Group `json:"cgroup,omitempty"`
		Image     *images.Image  `json:"image,omitempty"`
	}{s.dir, s.pid(), record.Group, record.Image})
	if err == nil {
		described.Details = details
	}
	return described
}

func (r *record) workdir() string {
	return cmp.Or(r.Spec.Workdir, r.imageWorkdir(), defaultWorkdir)
}

// find returns a live sandbox. What is left of a dead one is removed on the way: its
// process was killed, or the machine was started again.
func (d *Driver) find(ref plugin.Ref) (sandbox, *record, error) {
	id := idOf(ref)
	gone := plugin.NotFoundf("the sandbox %s does not exist on this machine", id)
	if !validID.MatchString(id) {
		return sandbox{}, nil, gone
	}
	found := d.sandbox(id)
	record, err := found.load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sandbox{}, nil, gone
	case err != nil:
		return sandbox{}, nil, plugin.Errorf(plugin.KindInternal, "the sandbox %s cannot be read: %w", id, err).WithHint("remove it with rm")
	case found.pid() == 0:
		return sandbox{}, nil, plugin.NotFoundf("the sandbox %s is gone: its process does not run any more", id)
	}
	return found, record, nil
}

func idOf(ref plugin.Ref) string {
	if len(ref.Handle) > 0 {
		return string(ref.Handle)
	}
	return ref.ID
}
