package host

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// drainLimit is how long a driver's pipes are read after its end. What it wrote is
// there at once; longer waits are for a process that it left behind with its stderr,
// and go-plugin would wait for that for as long as it lives.
const drainLimit = 100 * time.Millisecond

var errNotStarted = errors.New("the start was given up")

// process is a driver's process as go-plugin's runner.Runner. Its stdin is empty,
// whereas go-plugin's own runner would let the driver read what the user typed for
// a command.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *pipe
	first          firstLine
	tail           stderrTail

	// exited is closed at the process's end, after which waitErr is set.
	exited  chan struct{}
	waitErr error

	mu      sync.Mutex
	group   group
	started bool
	killed  bool
}

func newProcess(path string, env []string) (*process, error) {
	p := &process{cmd: &exec.Cmd{Path: path, Args: []string{path}, Env: env}, exited: make(chan struct{})}
	stdout, childStdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stderr, childStderr, err := os.Pipe()
	if err != nil {
		_ = stdout.Close()
		_ = childStdout.Close()
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = childStdout, childStderr
	p.stdout = newPipe(stdout, childStdout, &p.first)
	p.stderr = newPipe(stderr, childStderr, &p.tail)
	p.cmd.SysProcAttr = attributes()
	return p, nil
}

// Start starts the process and a goroutine that ends with it.
func (p *process) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := errNotStarted
	if !p.killed {
		keepInherited()
		err = p.cmd.Start()
	}
	p.stdout.closeChildEnd()
	p.stderr.closeChildEnd()
	if err != nil {
		_ = p.stdout.Close()
		_ = p.stderr.Close()
		return err
	}
	p.started = true
	p.group = newGroup(p.cmd.Process)
	go p.await()
	return nil
}

func (p *process) await() {
	p.waitErr = p.cmd.Wait()
	// Whatever the driver left in its process group ends with it.
	p.mu.Lock()
	p.group.kill()
	p.group.release()
	p.started = false
	p.mu.Unlock()
	p.cutPipes(drainLimit)
	close(p.exited)
}

// cutPipes lets reads of the pipes end by then. Where the system has no deadlines
// for pipes, as on Windows, all writers have ended with the group.
func (p *process) cutPipes(after time.Duration) {
	p.stdout.cut(after)
	p.stderr.cut(after)
}

// Kill ends the process and its group, now or before it starts.
func (p *process) Kill(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.started {
		p.group.kill()
	}
	return nil
}

// terminate asks the driver, and not its children, to end. It reports whether it could.
func (p *process) terminate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started && terminate(p.cmd.Process)
}

// ended waits for the process's end, no longer than the limit.
func (p *process) ended(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// settle waits until an ended process's stderr was read to its end, which drainLimit
// bounds.
func (p *process) settle() { <-p.stderr.drained }

// exitStatus is how a process that has ended did: "exit status 2", "signal: killed".
func (p *process) exitStatus() string { return p.cmd.ProcessState.String() }

// Wait is called by go-plugin once both pipes are at their end.
func (p *process) Wait(context.Context) error {
	<-p.exited
	_ = p.stdout.Close()
	_ = p.stderr.Close()
	return p.waitErr
}

// Stdout is where the handshake comes from.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr is the driver's log.
func (p *process) Stderr() io.ReadCloser { return p.stderr }

// Name is the executable.
func (p *process) Name() string { return p.cmd.Path }

// ID is the process number, or empty for a process that was not started.
func (p *process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(p.cmd.Process.Pid)
}

// Diagnose adds nothing: a StartError is made from the process itself.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost translates no addresses: the driver sees the same file system.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin is the same the other way.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
