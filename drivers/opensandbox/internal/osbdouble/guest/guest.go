//go:build linux

// Package guest gives each sandbox of the double a world of its own: namespaces for mounts, processes, network, IPC
// and host name, with a root file system in memory over read-only views of the host's programs. Commands run for
// real and their files never reach the host.
//
// The program that uses the package is re-executed inside the namespaces, so its main (or TestMain) must call
// [RunIfChild] before anything else.
package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/execd"
)

// stageEnv tells a re-executed program which part it plays and carries its settings as JSON.
const stageEnv = "OSBDOUBLE_GUEST"

// Config says what one sandbox looks like from the inside.
type Config struct {
	// Root is an empty directory on the host; the guest's root is mounted over it in the guest's own namespace.
	Root string
	// Hostname is the guest's host name.
	Hostname string
	// Entrypoint is the command whose end ends the sandbox.
	Entrypoint []string
	// Env is the complete environment of the entrypoint and of execd.
	Env []string
	// Limits are what the guest may use.
	Limits Limits
	// Network is what the guest can reach besides its own loopback.
	Network Network
	// Execd are the quirks of the execd inside.
	Execd execd.Options
	// Sidecar is the egress sidecar that shares the guest's network; nil without a policy.
	Sidecar *Sidecar
}

// Sidecar configures an egress sidecar.
type Sidecar struct {
	Policy      egress.Policy
	Token       string
	Enforcement string
}

type stage struct {
	Name   string
	Config Config
}

// Guest is a running sandbox.
type Guest struct {
	cmd    *exec.Cmd
	done   chan struct{}
	log    *tailBuffer
	limits *cgroup

	mu  sync.Mutex
	err error
}

// Start runs a sandbox whose execd serves on ln. The listener belongs to the network namespace it was made in, so
// it stays reachable when the guest itself is cut off.
func Start(cfg Config, ln *net.TCPListener) (*Guest, error) {
	file, err := ln.File()
	if err != nil {
		return nil, fmt.Errorf("duplicate the execd listener: %w", err)
	}
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	setting, err := json.Marshal(stage{Name: "init", Config: cfg})
	if err != nil {
		return nil, err
	}
	g := &Guest{done: make(chan struct{}), log: &tailBuffer{limit: 64 << 10}}
	g.cmd = exec.Command(self)
	g.cmd.Env = []string{stageEnv + "=" + string(setting)}
	g.cmd.ExtraFiles = []*os.File{file}
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	g.cmd.SysProcAttr = namespaces()
	// The sandbox waits for the end of its stdin before it does anything, so that it is limited from the beginning.
	start, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if g.limits, err = limit("osbdouble-"+cfg.Hostname, cfg.Limits); err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		g.limits.remove()
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	if err := errors.Join(g.limits.join(g.cmd.Process.Pid), connect(g.cmd.Process.Pid, cfg.Network)); err != nil {
		_ = g.cmd.Process.Kill()
		_ = g.cmd.Wait()
		g.limits.remove()
		return nil, fmt.Errorf("prepare the sandbox: %w", err)
	}
	_ = start.Close()
	go func() {
		err := g.cmd.Wait()
		g.limits.remove()
		g.mu.Lock()
		g.err = err
		g.mu.Unlock()
		close(g.done)
	}()
	return g, nil
}

// namespaces asks for everything a container gets; without root it also asks for a user namespace to be root in.
func namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWNET,
		Pdeathsig: syscall.SIGKILL,
		Setsid:    true,
	}
	if uid := os.Geteuid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// Done is closed when the sandbox has ended, whatever ended it.
func (g *Guest) Done() <-chan struct{} { return g.done }

// ExitCode is the entrypoint's status after [Guest.Done]; 137 when the sandbox was killed.
func (g *Guest) ExitCode() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	var exit *exec.ExitError
	switch {
	case g.err == nil:
		return 0
	case errors.As(g.err, &exit) && exit.Exited():
		return exit.ExitCode()
	default:
		return 137
	}
}

// Log is the end of what the entrypoint and execd printed.
func (g *Guest) Log() string { return g.log.String() }

// Kill ends the sandbox and everything in it, and waits until it is gone.
func (g *Guest) Kill() {
	_ = g.cmd.Process.Kill()
	<-g.done
}

// Pause stops every process of the sandbox; requests to it then hang, as they do with a frozen container.
func (g *Guest) Pause() error { return g.signalAll(syscall.SIGSTOP) }

// Resume continues what Pause stopped.
func (g *Guest) Resume() error { return g.signalAll(syscall.SIGCONT) }

// signalAll reaches every process in the guest's process namespace.
func (g *Guest) signalAll(sig syscall.Signal) error {
	pid := g.cmd.Process.Pid
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		ns, err := os.Readlink("/proc/" + e.Name() + "/ns/pid")
		if err != nil || ns != own {
			continue
		}
		var target int
		if _, err := fmt.Sscan(e.Name(), &target); err == nil {
			_ = syscall.Kill(target, sig)
		}
	}
	return nil
}

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	mu    sync.Mutex
	limit int
	data  []byte
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if over := len(b.data) - b.limit; over > 0 {
		b.data = append([]byte(nil), b.data[over:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.data)
}

// WaitReady returns when execd inside answers, or when the sandbox ends or the time is up.
func (g *Guest) WaitReady(addr string, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		if execd.Answers(addr) {
			return true
		}
		select {
		case <-g.done:
			return false
		case <-time.After(2 * time.Millisecond):
		}
	}
	return false
}
