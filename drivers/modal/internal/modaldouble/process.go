//go:build linux

package modaldouble

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
)

const (
	// unreadOutput is how far a command may run ahead of its readers.
	unreadOutput = 64 << 20
	// drainQuiet ends a stream this long after the process has exited and the
	// stream has fallen silent, although a background child holds it open.
	drainQuiet = 100 * time.Millisecond
)

// command is what one exec was asked to run.
type command struct {
	argv    []string
	env     []string
	workdir string
	pty     *pty.Winsize // nil without a terminal
	timeout time.Duration
	// discardStdout and discardStderr keep nothing of a stream.
	discardStdout, discardStderr bool
	// holdStreams keeps the streams open while any process holds them.
	holdStreams bool
}

// process is one exec in a sandbox.
type process struct {
	stdin          *stdin
	stdout, stderr *output
	done           chan struct{} // closed when code and signal are known
	code, signal   int
	kill           func()
	killTimer      *time.Timer
	drained        sync.WaitGroup
}

// startProcess runs c in g. An error means that nothing was started; a missing
// program is not an error but exit 127, as a container runtime's exec has it.
func startProcess(g *guest, c command) (*process, error) {
	p := &process{stdout: newOutput(unreadOutput), stderr: newOutput(unreadOutput), done: make(chan struct{})}
	if c.argv[0] == fileHelper {
		p.startHelper(g, c)
		return p, nil
	}
	cmd := &exec.Cmd{Args: c.argv, Env: c.env, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	streams, err := p.connect(cmd, c)
	if err != nil {
		return nil, err
	}
	err = g.run(func() error {
		cmd.Dir = c.workdir
		path, err := findProgram(c.argv[0], c.env, cmd.Dir)
		if err != nil {
			return err
		}
		cmd.Path = path
		return g.start(cmd)
	})
	streams.closeChildEnds()
	if err != nil {
		p.failToStart(err)
		streams.closeOwnEnds()
		return p, nil
	}
	p.kill = func() { _ = cmd.Process.Kill() }
	p.pump(streams, c)
	p.armTimeout(c.timeout)
	go func() {
		// The status is read from ProcessState; Wait's error repeats it.
		_ = cmd.Wait()
		p.exited(cmd.ProcessState.Sys().(syscall.WaitStatus))
		streams.afterExit(c.holdStreams)
	}()
	return p, nil
}

// findProgram resolves name the way execvp would in the guest.
func findProgram(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, executable(name)
	}
	search := guestPath
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			search = value
		}
	}
	var denied error
	for _, dir := range filepath.SplitList(search) {
		candidate := filepath.Join(dir, name)
		err := executable(candidate)
		if err == nil {
			return candidate, nil
		}
		if errors.Is(err, os.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &os.PathError{Op: "exec", Path: name, Err: syscall.ENOENT}
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return &os.PathError{Op: "exec", Path: path, Err: syscall.EACCES}
	}
	return nil
}

func (p *process) failToStart(err error) {
	p.code = 127
	if errors.Is(err, os.ErrPermission) {
		p.code = 126
	}
	_, _ = io.WriteString(p.stderr, "exec failed: "+err.Error()+"\n")
	p.stdin.end()
	p.stdout.close()
	p.stderr.close()
	p.kill = func() {}
	close(p.done)
}

func (p *process) exited(status syscall.WaitStatus) {
	if p.killTimer != nil {
		p.killTimer.Stop()
	}
	if status.Signaled() {
		p.signal = int(status.Signal())
	} else {
		p.code = status.ExitStatus()
	}
	p.stdin.end()
	close(p.done)
}

// armTimeout kills only the process itself: whether the service takes its
// children along is not known, so a client must not rely on it.
func (p *process) armTimeout(after time.Duration) {
	if after > 0 {
		p.killTimer = time.AfterFunc(after, p.kill)
	}
}

// streams are both ends of a process's standard streams.
type streams struct {
	child   []*os.File
	in      *os.File
	outputs []*os.File
	pty     bool
}

func (p *process) connect(cmd *exec.Cmd, c command) (*streams, error) {
	if c.pty != nil {
		return p.connectTerminal(cmd, c.pty)
	}
	s := &streams{}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.in, s.child = inWrite, []*os.File{inRead}
	for range 2 {
		read, write, err := os.Pipe()
		if err != nil {
			s.closeChildEnds()
			s.closeOwnEnds()
			return nil, err
		}
		s.outputs, s.child = append(s.outputs, read), append(s.child, write)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.child[0], s.child[1], s.child[2]
	p.stdin = &stdin{to: inWrite, finish: inWrite.Close, abort: func() { _ = inWrite.Close() }}
	return s, nil
}

func (p *process) connectTerminal(cmd *exec.Cmd, size *pty.Winsize) (*streams, error) {
	terminal, tty, err := pty.Open()
	if err != nil {
		return nil, err
	}
	s := &streams{child: []*os.File{tty}, in: terminal, outputs: []*os.File{terminal}, pty: true}
	if err := pty.Setsize(terminal, size); err != nil {
		s.closeChildEnds()
		s.closeOwnEnds()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr.Setctty = true
	endOfFile := func() error { _, err := terminal.Write([]byte{4}); return err }
	p.stdin = &stdin{to: terminal, finish: endOfFile, abort: func() {}}
	return s, nil
}

// pump copies the process's output until it ends.
func (p *process) pump(s *streams, c command) {
	targets := []*output{p.stdout, p.stderr}
	discard := []bool{c.discardStdout, c.discardStderr}
	if s.pty {
		p.stderr.close()
	}
	for i, file := range s.outputs {
		target := targets[i]
		sink := io.Writer(target)
		if discard[i] {
			sink = io.Discard
		}
		p.drained.Go(func() {
			defer target.close()
			buffer := make([]byte, 32<<10)
			for {
				n, err := file.Read(buffer)
				_, _ = sink.Write(buffer[:n])
				if err != nil {
					return
				}
				select {
				case <-p.done:
					if !c.holdStreams {
						_ = file.SetReadDeadline(time.Now().Add(drainQuiet))
					}
				default:
				}
			}
		})
	}
	go func() {
		p.drained.Wait()
		<-p.done
		s.swallow()
	}()
}

// afterExit ends the streams once what the process wrote has been read.
func (s *streams) afterExit(hold bool) {
	if hold {
		return
	}
	for _, file := range s.outputs {
		_ = file.SetReadDeadline(time.Now().Add(drainQuiet))
	}
}

// swallow reads what background children still write, so that they neither
// block nor get SIGPIPE, and closes the streams when the last one is gone.
func (s *streams) swallow() {
	var open sync.WaitGroup
	for _, file := range s.outputs {
		open.Go(func() {
			_ = file.SetReadDeadline(time.Time{})
			_, _ = io.Copy(io.Discard, file)
			_ = file.Close()
		})
	}
	open.Wait()
}

func (s *streams) closeChildEnds() {
	for _, file := range s.child {
		_ = file.Close()
	}
}

func (s *streams) closeOwnEnds() {
	_ = s.in.Close()
	for _, file := range s.outputs {
		_ = file.Close()
	}
}
