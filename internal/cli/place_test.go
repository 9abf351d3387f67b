//go:build linux

package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

// patience is how long a test waits for what takes milliseconds on a quiet machine.
const patience = 30 * time.Second

// place is a user of sandboxctl: a state directory, a backend, and the real programs,
// linked into a directory of their own so that their processes can be told from others.
type place struct {
	t      testing.TB
	dir    string
	state  string
	driver string
	env    []string
	gates  faultdriver.Gates
	// backend is where the driver keeps its sandboxes: a file or a directory each.
	backend string
}

// buildPlaces builds the programs that places are made of.
func buildPlaces(t testing.TB, packages ...string) string {
	t.Helper()
	return buildDrivers(t, append(packages, module+"/cmd/sandboxctl")...)
}

func buildFaultyPlaces(t testing.TB) string {
	t.Helper()
	return buildPlaces(t, module+"/internal/faultdriver/cmd/sandboxctl-driver-faulty")
}

// newFaultyPlace is a place with the fault driver. Places with the same store share an
// account.
func newFaultyPlace(t testing.TB, programs, store string) *place {
	t.Helper()
	p := newPlace(t, programs, "faulty")
	p.gates.Dir = filepath.Join(p.dir, "gates")
	if err := os.Mkdir(p.gates.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if p.backend = store; store == "" {
		p.backend = filepath.Join(p.dir, "store")
	}
	p.configure(fmt.Sprintf("path: %s, store: %s, gates: %s", p.driver, p.backend, p.gates.Dir))
	return p
}

func newLocalPlace(t testing.TB, programs string) *place {
	t.Helper()
	p := newPlace(t, programs, "local")
	p.backend = filepath.Join(p.state, "drivers", "local", "sandboxes")
	p.configure("path: " + p.driver)
	return p
}

func newPlace(t testing.TB, programs, driver string) *place {
	t.Helper()
	// Sockets have to have short paths, and drivers have to be in private directories.
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &place{t: t, dir: dir, state: filepath.Join(dir, "state")}
	files, err := filepath.Glob(filepath.Join(programs, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Link(file, filepath.Join(dir, filepath.Base(file))); err != nil {
			t.Fatal(err)
		}
	}
	p.driver = filepath.Join(dir, "sandboxctl-driver-"+driver)
	p.configure("path: " + p.driver)
	for _, sub := range []string{"s", "out"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "s"),
		"SANDBOXCTL_CONFIG=" + filepath.Join(dir, "config.yaml"), "SANDBOXCTL_STATE_DIR=" + p.state,
	}
	t.Cleanup(p.clear)
	return p
}

func (p *place) configure(settings string) {
	p.t.Helper()
	name := strings.TrimPrefix(filepath.Base(p.driver), "sandboxctl-driver-")
	content := fmt.Sprintf("driver: %s\ndrivers:\n  %s: {%s}\n", name, name, settings)
	if err := os.WriteFile(filepath.Join(p.dir, "config.yaml"), []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// running is a sandboxctl at work.
type running struct {
	p              *place
	command        *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr *lockedBuffer
	began          time.Time
	ended          chan struct{}
}

func (p *place) start(args ...string) *running {
	p.t.Helper()
	program := filepath.Join(p.dir, "sandboxctl")
	r := &running{p: p, stdout: &lockedBuffer{}, stderr: &lockedBuffer{}, ended: make(chan struct{}), began: time.Now()}
	r.command = &exec.Cmd{
		Path: program, Args: append([]string{program}, args...), Env: p.env, Stdout: r.stdout, Stderr: r.stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		// A guest's process may hold the output for longer than the killed sandboxctl.
		WaitDelay: time.Second,
	}
	stdin, err := r.command.StdinPipe()
	if err == nil {
		r.stdin = stdin
		err = r.command.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = r.command.Wait()
		close(r.ended)
	}()
	return r
}

func (r *running) signal(signal syscall.Signal) {
	// It may have ended by itself.
	_ = r.command.Process.Signal(signal)
}

// wait returns the exit code, or -1 for a killed process.
func (r *running) wait() int {
	r.p.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		_ = r.command.Process.Kill()
		r.p.t.Fatalf("%q does not end; stderr: %s", r.command.Args[1:], r.stderr)
	}
	return r.command.ProcessState.ExitCode()
}

func (p *place) run(args ...string) (code int, stdout string) {
	p.t.Helper()
	r := p.start(args...)
	_ = r.stdin.Close()
	code = r.wait()
	return code, r.stdout.String()
}

// must runs sandboxctl, which has to succeed.
func (p *place) must(args ...string) string {
	p.t.Helper()
	r := p.start(args...)
	_ = r.stdin.Close()
	if code := r.wait(); code != 0 {
		p.t.Fatalf("%q: exit %d\nstdout: %s\nstderr: %s", args, code, r.stdout, r.stderr)
	}
	return r.stdout.String()
}

func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(500 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

func (p *place) closeGate(step faultdriver.Step) {
	p.t.Helper()
	if err := p.gates.Close(step); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) openGate(step faultdriver.Step) {
	p.t.Helper()
	if err := p.gates.Open(step); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) awaitGate(step faultdriver.Step) {
	p.t.Helper()
	await(p.t, "the driver at the step "+string(step), func() bool { return p.gates.Reached(step) })
}

// records are the states in the ledger's files, by id; it is read past sandboxctl.
func (p *place) records() map[string]string {
	p.t.Helper()
	states := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(p.state, "records", "sb-*.json"))
	for _, file := range files {
		var record struct{ ID, State string }
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(content, &record)
		}
		if err != nil {
			p.t.Errorf("the record %s: %v", file, err)
		}
		states[record.ID] = record.State
	}
	return states
}

func (p *place) awaitState(state string) {
	p.t.Helper()
	await(p.t, "a record that is "+state, func() bool {
		for _, is := range p.records() {
			if is == state {
				return true
			}
		}
		return false
	})
}

// sandboxes are the ids that the backend has.
func (p *place) sandboxes() []string {
	entries, _ := os.ReadDir(p.backend)
	ids := []string{}
	for _, entry := range entries {
		if id, isFile := strings.CutSuffix(entry.Name(), ".json"); isFile != (filepath.Base(p.driver) == "sandboxctl-driver-local") {
			ids = append(ids, id)
		}
	}
	return ids
}

// processes are those of this place's programs and of its guests.
func (p *place) processes(of string) []int {
	var found []int
	lines, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range lines {
		line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(process, "cwd"))
		if bytes.Contains(line, []byte(of)) || strings.HasPrefix(cwd, of) {
			if pid, err := strconv.Atoi(filepath.Base(process)); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// killDrivers kills the processes of the driver itself.
func (p *place) killDrivers(signal syscall.Signal) {
	p.t.Helper()
	for _, pid := range p.processes(p.driver) {
		if err := syscall.Kill(pid, signal); err != nil && err != syscall.ESRCH {
			p.t.Error(err)
		}
	}
}

func (p *place) awaitNoDriver() {
	p.t.Helper()
	await(p.t, "the driver's end", func() bool { return len(p.processes(p.driver)) == 0 })
}

// collect lets a fresh gc run, which must find nothing that it cannot do.
func (p *place) collect() {
	p.t.Helper()
	p.ageSockets()
	if code, stdout := p.run("gc", "--json"); code != 0 {
		p.t.Errorf("gc: exit %d: %s", code, stdout)
	}
}

// ageSockets makes the sockets of killed drivers old enough to be swept.
func (p *place) ageSockets() {
	old := time.Now().Add(-time.Hour)
	dirs, _ := filepath.Glob(filepath.Join(p.dir, "s", "*", "plugin-dir*"))
	for _, dir := range dirs {
		_ = os.Chtimes(dir, old, old)
	}
}

// check looks for whatever there is besides sandboxes that are ready and listed. It
// returns these.
func (p *place) check() []string {
	p.t.Helper()
	listed := []string{}
	for id, state := range p.records() {
		if state != "ready" {
			p.t.Errorf("the record %s is %s", id, state)
		}
		listed = append(listed, id)
	}
	slices.Sort(listed)
	// The keeper of a local sandbox may be about to remove what is gone already.
	for end := time.Now().Add(5 * time.Second); len(p.sandboxes()) > len(listed) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if backend := p.sandboxes(); !slices.Equal(listed, backend) {
		p.t.Errorf("the ledger has %q, the backend %q", listed, backend)
	}
	_ = filepath.WalkDir(p.dir, func(path string, entry os.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist), path == p.backend:
			return filepath.SkipDir
		case path == filepath.Join(p.dir, "out"):
			// A killed copy leaves its part beside its target, where only the user looks.
			return filepath.SkipDir
		case err != nil:
			p.t.Error(err)
		case entry.Type()&os.ModeSocket != 0, strings.HasPrefix(entry.Name(), "plugin-dir"), strings.HasPrefix(entry.Name(), "."),
			!entry.IsDir() && filepath.Base(filepath.Dir(path)) == "locks":
			p.t.Errorf("left behind: %s", path)
		}
		return nil
	})
	if len(listed) == 0 {
		await(p.t, "the end of all processes", func() bool { return len(p.processes(p.dir+"/")) == 0 })
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		if bytes.Contains(mounts, []byte(p.dir+"/")) {
			p.t.Errorf("mounts are left:\n%s", mounts)
		}
	}
	return listed
}

// clear ends what a failed test has left.
func (p *place) clear() {
	for _, step := range []faultdriver.Step{
		faultdriver.StepConfigure, faultdriver.StepCreate, faultdriver.StepMade, faultdriver.StepTold, faultdriver.StepDestroy,
		faultdriver.StepDestroyed, faultdriver.StepExec, faultdriver.StepRead, faultdriver.StepWrite, faultdriver.StepList,
		faultdriver.StepInspect, faultdriver.StepRenewed,
	} {
		_ = p.gates.Open(step)
	}
	if len(p.records()) > 0 {
		_, _ = p.run("rm", "-f", "--all")
	}
	for _, pid := range p.processes(p.dir + "/") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
