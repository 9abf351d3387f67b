//go:build linux

package execd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// replayLimit is how much output a session keeps for a client that comes back.
const replayLimit = 1 << 20

// ptySession is a process on a terminal or on pipes that one websocket at a time is attached to.
type ptySession struct {
	id, cwd, command string
	newCommand       func(text string) *exec.Cmd
	loseTail         bool

	mu       sync.Mutex
	attached bool
	onPTY    bool
	pid      int
	exitCode int
	done     chan struct{} // made at start, closed when the process has ended
	stdin    io.WriteCloser
	master   *os.File
	replay   []byte
	total    int64
	sink     func(channel byte, p []byte) // the attached client
	evict    func()
}

func (s *server) createPTY(w http.ResponseWriter, r *http.Request) {
	var req struct{ Cwd, Command string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil && !errors.Is(err, io.EOF) {
		fail(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", "error parsing request: "+err.Error())
		return
	}
	p := &ptySession{id: newID(), cwd: expand(req.Cwd), command: req.Command, exitCode: -1, loseTail: s.opts.LoseTail}
	if p.cwd != "" {
		// The daemon makes the directory; it does not refuse a missing one.
		if err := os.MkdirAll(p.cwd, 0o777); err != nil {
			fail(w, http.StatusInternalServerError, "RUNTIME_ERROR", "error creating pty session: "+err.Error())
			return
		}
	}
	p.newCommand = func(text string) *exec.Cmd {
		if s.opts.BashOnly && s.opts.NoBash {
			return exec.Command("/usr/bin/bash.missing")
		}
		if text == "" {
			return s.shell()
		}
		return s.shell(text)
	}
	s.mu.Lock()
	s.ptys[p.id] = p
	s.mu.Unlock()
	writeJSON(w, http.StatusCreated, map[string]string{"session_id": p.id})
}

func (s *server) pty(w http.ResponseWriter, r *http.Request) *ptySession {
	s.mu.Lock()
	p := s.ptys[r.PathValue("id")]
	s.mu.Unlock()
	if p == nil {
		fail(w, http.StatusNotFound, "CONTEXT_NOT_FOUND", "pty session "+r.PathValue("id")+" not found")
	}
	return p
}

func (s *server) statusPTY(w http.ResponseWriter, r *http.Request) {
	if p := s.pty(w, r); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		writeJSON(w, http.StatusOK, map[string]any{"session_id": p.id, "running": p.pid != 0, "output_offset": p.total})
	}
}

func (s *server) deletePTY(w http.ResponseWriter, r *http.Request) {
	p := s.pty(w, r)
	if p == nil {
		return
	}
	s.mu.Lock()
	delete(s.ptys, p.id)
	s.mu.Unlock()
	p.signal(syscall.SIGKILL)
	w.WriteHeader(http.StatusOK)
}

// start runs the session's process. A session whose process has ended starts it again, as the real one does.
func (p *ptySession) start(terminal bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 {
		return nil
	}
	cmd := p.newCommand(p.command)
	cmd.Dir, cmd.Env = p.cwd, os.Environ()
	p.onPTY = terminal
	p.done = make(chan struct{})
	if terminal {
		return p.startTerminal(cmd)
	}
	return p.startPipes(cmd)
}

func (p *ptySession) startTerminal(cmd *exec.Cmd) error {
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 80, Rows: 24})
	if err != nil {
		return err
	}
	p.pid, p.master, p.stdin = cmd.Process.Pid, master, master
	go p.broadcast(master, 0x01)
	go p.wait(cmd, master)
	return nil
}

func (p *ptySession) startPipes(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ends := make([]*os.File, 0, 6)
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		ends = append(ends, r, w)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ends[0], ends[3], ends[5]
	err := cmd.Start()
	for _, i := range []int{0, 3, 5} {
		_ = ends[i].Close()
	}
	if err != nil {
		for _, i := range []int{1, 2, 4} {
			_ = ends[i].Close()
		}
		return err
	}
	p.pid, p.stdin = cmd.Process.Pid, ends[1]
	go p.broadcast(ends[2], 0x01)
	go p.broadcast(ends[4], 0x02)
	go p.wait(cmd, ends[1])
	return nil
}

// broadcast copies one output channel into the replay memory and to the attached client.
func (p *ptySession) broadcast(r *os.File, channel byte) {
	defer r.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if p.loseTail {
				time.Sleep(20 * time.Millisecond) // the end of the process overtakes what was read last
			}
			p.mu.Lock()
			p.replay = append(p.replay, buf[:n]...)
			if len(p.replay) > 2*replayLimit {
				// Moved down rarely, so that much output does not mean much copying.
				p.replay = p.replay[:copy(p.replay, p.replay[len(p.replay)-replayLimit:])]
			}
			p.total += int64(n)
			sink := p.sink
			p.mu.Unlock()
			if sink != nil {
				sink(channel, buf[:n])
			}
		}
		if err != nil {
			return
		}
	}
}

// wait announces the end of the process without waiting for its output: the tail may be lost.
func (p *ptySession) wait(cmd *exec.Cmd, stdin io.Closer) {
	_ = cmd.Wait()
	_ = stdin.Close()
	p.mu.Lock()
	p.exitCode, p.pid = cmd.ProcessState.ExitCode(), 0
	done := p.done
	p.mu.Unlock()
	close(done)
}

func (p *ptySession) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 {
		_ = syscall.Kill(-p.pid, sig)
	}
}

func (p *ptySession) resize(cols, rows uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onPTY && p.pid != 0 {
		_ = pty.Setsize(p.master, &pty.Winsize{Cols: cols, Rows: rows})
	}
}

// snapshot returns the output since an offset and connects the sink, without a gap between the two.
func (p *ptySession) snapshot(since int64, sink func(byte, []byte)) ([]byte, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.total - int64(min(len(p.replay), replayLimit))
	from := min(max(since, first), p.total)
	p.sink = sink
	return bytes.Clone(p.replay[len(p.replay)-int(p.total-from):]), p.total
}
