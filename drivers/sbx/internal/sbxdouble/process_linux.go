package sbxdouble

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// processes starts and reaps every process of a machine: its first process is
// the parent of all orphans, so one loop waits for all of them.
type processes struct {
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
	memory  uint64 // bytes of data that a process may have; zero is no limit
}

type outputStream struct {
	kind byte
	file *os.File
}

type process struct {
	stdin     *os.File
	streams   []outputStream
	tty       bool
	exited    chan syscall.WaitStatus
	closeOnce sync.Once
}

func (p *process) closeStdin() {
	if !p.tty {
		p.closeOnce.Do(func() { p.stdin.Close() })
	}
}

func (p *process) resize(size [2]uint16) {
	if p.tty {
		_ = pty.Setsize(p.stdin, &pty.Winsize{Rows: size[0], Cols: size[1]})
	}
}

func newProcesses(memory string) *processes {
	bytes, _ := memoryBytes(memory)
	p := &processes{memory: uint64(bytes), waiting: map[int]chan syscall.WaitStatus{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			p.reap()
		}
	}()
	return p
}

func (p *processes) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		p.mu.Lock()
		if exited, ok := p.waiting[pid]; ok {
			exited <- status
			delete(p.waiting, pid)
		}
		p.mu.Unlock()
	}
}

func (p *processes) fork(path string, argv []string, attr *syscall.ProcAttr) (chan syscall.WaitStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	if p.memory > 0 {
		// Of each process, where the real thing limits all of them together.
		limit := unix.Rlimit{Cur: p.memory, Max: p.memory}
		_ = unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil)
	}
	exited := make(chan syscall.WaitStatus, 1)
	p.waiting[pid] = exited
	return exited, nil
}

// start runs a command the way `docker exec` does: no shell, own session.
func (m *machine) start(request execRequest) (*process, error) {
	env, attr, err := m.environment(request)
	if err != nil {
		return nil, err
	}
	attr.Env = env
	path, err := lookPath(request.Args[0], env, attr.Dir)
	if err != nil {
		return nil, fmt.Errorf("OCI runtime exec failed: exec failed: unable to start container process: exec: %q: executable file not found in $PATH", request.Args[0])
	}
	proc := &process{tty: request.TTY}
	var childEnds []*os.File
	if request.TTY {
		childEnds, err = proc.openTerminal(request.Size)
		attr.Sys.Setctty = true
	} else {
		childEnds, err = proc.openPipes()
	}
	if err != nil {
		return nil, err
	}
	for _, file := range childEnds {
		attr.Files = append(attr.Files, file.Fd())
	}
	proc.exited, err = m.procs.fork(path, request.Args, attr)
	for _, file := range childEnds {
		file.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("OCI runtime exec failed: exec failed: unable to start container process: %w", err)
	}
	return proc, nil
}

func (p *process) openTerminal(size [2]uint16) ([]*os.File, error) {
	leader, follower, err := pty.Open()
	if err != nil {
		return nil, err
	}
	p.stdin = leader
	p.resize(size)
	p.streams = []outputStream{{frameStdout, leader}}
	return []*os.File{follower, follower, follower}, nil
}

func (p *process) openPipes() ([]*os.File, error) {
	stdinReader, stdinWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdoutReader, stdoutWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stderrReader, stderrWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdinWriter
	p.streams = []outputStream{{frameStdout, stdoutReader}, {frameStderr, stderrReader}}
	return []*os.File{stdinReader, stdoutWriter, stderrWriter}, nil
}

// environment resolves user, working directory and variables.
func (m *machine) environment(request execRequest) ([]string, *syscall.ProcAttr, error) {
	name := request.User
	if name == "" {
		name = "root"
		if strings.HasPrefix(m.box.Image, "docker/sandbox-templates:") {
			name = "agent"
		}
	}
	uid, gid, home, err := lookUser(name)
	if err != nil {
		return nil, nil, err
	}
	dir := request.Dir
	if dir == "" {
		dir = "/home/agent/workspace"
		if len(m.box.Workspaces) > 0 && !m.box.Unmounted {
			dir = m.box.Workspaces[0]
		}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil, fmt.Errorf("OCI runtime exec failed: exec failed: chdir to cwd (%q) failed: no such file or directory", dir)
	}
	env := []string{
		"PATH=" + defaultPath, "HOME=" + home, "HOSTNAME=" + m.box.Name,
		"HTTP_PROXY=" + proxyURL, "HTTPS_PROXY=" + proxyURL, "http_proxy=" + proxyURL, "https_proxy=" + proxyURL,
	}
	attr := &syscall.ProcAttr{Dir: dir, Sys: &syscall.SysProcAttr{Setsid: true}}
	if mappedUsers() {
		attr.Sys.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	return mergeEnv(env, request.Env), attr, nil
}

// mergeEnv lets later entries replace earlier ones.
func mergeEnv(env, more []string) []string {
	for _, entry := range more {
		name, _, _ := strings.Cut(entry, "=")
		kept := env[:0]
		for _, old := range env {
			if !strings.HasPrefix(old, name+"=") {
				kept = append(kept, old)
			}
		}
		env = append(kept, entry)
	}
	return env
}

func lookUser(user string) (uint32, uint32, string, error) {
	name, group, hasGroup := strings.Cut(user, ":")
	var uid, gid uint64
	home := "/"
	switch name {
	case "root", "0":
		home = "/root"
	case "agent", "1000":
		uid, gid, home = 1000, 1000, "/home/agent"
	default:
		number, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return 0, 0, "", fmt.Errorf("unable to find user %s: no matching entries in passwd file", name)
		}
		uid = number
	}
	if hasGroup {
		number, err := strconv.ParseUint(group, 10, 32)
		if err != nil {
			return 0, 0, "", fmt.Errorf("unable to find group %s: no matching entries in group file", group)
		}
		gid = number
	}
	return uint32(uid), uint32(gid), home, nil
}

// mappedUsers says whether this machine has more users than root: without
// privileges on the host it has not.
func mappedUsers() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err == nil && len(fields) >= 3 && fields[2] != "1"
}

func lookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}
	for _, entry := range env {
		if list, ok := strings.CutPrefix(entry, "PATH="); ok {
			for _, folder := range filepath.SplitList(list) {
				if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
					return path, nil
				}
			}
		}
	}
	return "", exec.ErrNotFound
}
