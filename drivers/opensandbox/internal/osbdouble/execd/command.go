//go:build linux

package execd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

type commandRequest struct {
	Command    string            `json:"command"`
	Argv       []string          `json:"argv"`
	Cwd        string            `json:"cwd"`
	Background bool              `json:"background"`
	Timeout    *int64            `json:"timeout"`
	UID        *uint32           `json:"uid"`
	GID        *uint32           `json:"gid"`
	Envs       map[string]string `json:"envs"`
}

// command is one run, known by its id until the daemon ends.
type command struct {
	id         string
	text       string
	background bool
	started    time.Time
	done       chan struct{}

	mu       sync.Mutex
	pid      int
	finished time.Time
	exit     *int
	problem  string
}

func (c *command) outFile() string { return filepath.Join(os.TempDir(), c.id+".stdout") }
func (c *command) errFile() string { return filepath.Join(os.TempDir(), c.id+".stderr") }

func (s *server) runCommand(w http.ResponseWriter, r *http.Request) {
	var req commandRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", "error parsing request: "+err.Error())
		return
	}
	if err := req.check(); err != nil {
		fail(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", err.Error())
		return
	}
	c := &command{id: newID(), text: req.Command, background: req.Background, started: time.Now(), done: make(chan struct{})}
	s.mu.Lock()
	s.commands[c.id] = c
	s.mu.Unlock()

	stream := s.newStream(w, r)
	defer stream.end(s.hold)
	if s.opts.MuteCommands {
		<-r.Context().Done()
		return
	}
	stream.send(event{Type: "init", Text: c.id})
	stream.send(event{Type: "ping", Text: "pong"})
	// The command outlives the request: losing the client does not stop it.
	launched := s.launch(c, req)
	if req.Background {
		stream.send(event{Type: "execution_complete", ExecutionTime: 0})
		return
	}
	s.follow(stream, c, launched)
}

func (req *commandRequest) check() error {
	if (req.Command == "") == (len(req.Argv) == 0) {
		return errors.New("exactly one of command and argv is required")
	}
	if req.Timeout != nil && *req.Timeout < 1 {
		return errors.New("timeout must be at least 1")
	}
	if req.GID != nil && req.UID == nil {
		return errors.New("gid requires uid")
	}
	if req.Cwd != "" {
		if info, err := os.Stat(expand(req.Cwd)); err != nil || !info.IsDir() {
			return fmt.Errorf("working directory %s does not exist", req.Cwd)
		}
	}
	return nil
}

// launch starts the command and returns the error of starting it; the end is announced on c.done.
func (s *server) launch(c *command, req commandRequest) error {
	cmd := s.shell(req.Command)
	if len(req.Argv) > 0 {
		cmd = exec.Command(req.Argv[0], req.Argv[1:]...)
	}
	cmd.Dir = expand(req.Cwd)
	cmd.Env = os.Environ()
	for k, v := range req.Envs {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if req.UID != nil {
		cred := &syscall.Credential{Uid: *req.UID, NoSetGroups: true}
		if req.GID != nil {
			cred.Gid = *req.GID
		}
		cmd.SysProcAttr.Credential = cred
	}
	err := c.start(cmd)
	if err != nil {
		c.finish(nil, err.Error())
		return err
	}
	var timer *time.Timer
	if req.Timeout != nil {
		timer = time.AfterFunc(time.Duration(*req.Timeout)*time.Millisecond, func() { c.signal(syscall.SIGKILL) })
	}
	go func() {
		err := cmd.Wait()
		if timer != nil {
			timer.Stop()
		}
		code, problem := 0, ""
		if err != nil {
			code, problem = cmd.ProcessState.ExitCode(), err.Error()
		}
		c.finish(&code, problem)
	}()
	return nil
}

func (c *command) start(cmd *exec.Cmd) error {
	out, err := os.Create(c.outFile())
	if err != nil {
		return err
	}
	defer out.Close()
	errs, err := os.Create(c.errFile())
	if err != nil {
		return err
	}
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		return err
	}
	c.mu.Lock()
	c.pid = cmd.Process.Pid
	c.mu.Unlock()
	return nil
}

func (c *command) finish(exit *int, problem string) {
	c.mu.Lock()
	c.exit, c.problem, c.finished = exit, problem, time.Now()
	c.mu.Unlock()
	close(c.done)
}

// signal reaches the command's process group while it runs.
func (c *command) signal(sig syscall.Signal) bool {
	select {
	case <-c.done:
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid != 0 && syscall.Kill(-c.pid, sig) == nil
}

// follow turns a foreground command's output files and its end into events.
func (s *server) follow(stream *stream, c *command, launched error) {
	if launched == nil {
		var wg sync.WaitGroup
		for kind, name := range map[string]string{"stdout": c.outFile(), "stderr": c.errFile()} {
			wg.Go(func() { s.tail(stream, kind, name, c.done) })
		}
		stopPings := stream.pingEvery(3 * time.Second)
		wg.Wait()
		stopPings()
	}
	c.mu.Lock()
	exit, problem := c.exit, c.problem
	c.mu.Unlock()
	switch {
	case exit == nil:
		stream.send(event{Type: "error", Error: &eventError{Name: "CommandExecError", Value: problem, Traceback: []string{problem}}})
	case *exit == 0:
		stream.send(event{Type: "execution_complete", ExecutionTime: time.Since(c.started).Milliseconds()})
	default:
		stream.send(event{Type: "error", Error: &eventError{Name: "CommandExecError", Value: strconv.Itoa(*exit), Traceback: []string{problem}}})
	}
}

func (s *server) command(id string) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands[id]
}

// commandReport serves /command/status/{id} and /command/{id}/logs, which one pattern must tell apart.
func (s *server) commandReport(w http.ResponseWriter, r *http.Request) {
	switch first, second := r.PathValue("first"), r.PathValue("second"); {
	case first == "status":
		s.commandStatus(w, second)
	case second == "logs":
		s.commandLogs(w, r, first)
	default:
		http.Error(w, "404 page not found", http.StatusNotFound)
	}
}

func (s *server) commandStatus(w http.ResponseWriter, id string) {
	c := s.command(id)
	if c == nil {
		fail(w, http.StatusNotFound, "INVALID_REQUEST_BODY", "command not found: "+id)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	status := map[string]any{"id": c.id, "content": c.text, "running": c.finished.IsZero(), "error": c.problem, "started_at": c.started}
	if c.exit != nil {
		status["exit_code"] = *c.exit
	}
	if !c.finished.IsZero() {
		status["finished_at"] = c.finished
	}
	writeJSON(w, http.StatusOK, status)
}

func (s *server) commandLogs(w http.ResponseWriter, r *http.Request, id string) {
	c := s.command(id)
	if c == nil || !c.background {
		fail(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", "not a background command: "+id)
		return
	}
	cursor, _ := strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64)
	out, _ := os.ReadFile(c.outFile())
	errs, _ := os.ReadFile(c.errFile())
	all := append(out, errs...)
	cursor = min(max(cursor, 0), int64(len(all)))
	w.Header().Set("EXECD-COMMANDS-TAIL-CURSOR", strconv.Itoa(len(all)))
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(all[cursor:])
}

// interruptCommand asks, waits up to 3 s, then forces.
func (s *server) interruptCommand(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if id == "" {
		fail(w, http.StatusBadRequest, "MISSING_QUERY", "missing query parameter 'id'")
		return
	}
	c := s.command(id)
	if c == nil {
		fail(w, http.StatusInternalServerError, "RUNTIME_ERROR", "no such session")
		return
	}
	if !c.signal(syscall.SIGTERM) {
		fail(w, http.StatusInternalServerError, "RUNTIME_ERROR", "command "+id+" is not running")
		return
	}
	select {
	case <-c.done:
	case <-time.After(3 * time.Second):
		c.signal(syscall.SIGKILL)
		<-c.done
	}
}
