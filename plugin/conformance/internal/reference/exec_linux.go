package reference

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// markVariable is how the processes of one command are known, wherever they went.
const markVariable = "REFERENCE_EXEC"

// Exec implements plugin.Driver.
func (d *Driver) Exec(ctx context.Context, ref plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	known, err := d.find(ref)
	if err != nil {
		return plugin.ExitStatus{}, err
	}
	run := &running{sandbox: known, stdio: stdio, mark: newMark(), flaws: d.flaws, written: make(chan error, 2), ended: make(chan struct{})}
	if err := run.prepare(request); err != nil {
		return plugin.ExitStatus{}, err
	}
	return run.wait(ctx, request.Timeout)
}

// running is a command under way.
type running struct {
	sandbox *record
	stdio   *plugin.ExecIO
	mark    string
	command *exec.Cmd
	outputs []*os.File
	written chan error
	ended   chan struct{}
	flaws   flaws
}

func newMark() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	return hex.EncodeToString(random[:])
}

func (r *running) prepare(request *plugin.ExecRequest) error {
	inside, ok := r.sandbox.inside()
	if !ok {
		return plugin.NotFoundf("sandbox %s does not exist", r.sandbox.ID)
	}
	workdir := request.Workdir
	if workdir == "" {
		workdir = r.sandbox.Workdir
	}
	if info, err := os.Stat(r.sandbox.path(inside, workdir)); err != nil || !info.IsDir() {
		return plugin.PathErrorf(workdir, plugin.PathMissing, "the working directory %s does not exist", workdir)
	}
	arguments := []string{"-t", strconv.Itoa(inside), "-m", "-p", "-n", "-i", "-u", "-r", "--wdns=" + workdir}
	if request.User != "" {
		user, group, _ := strings.Cut(request.User, ":")
		if _, err := strconv.ParseUint(user, 10, 32); err != nil {
			return plugin.Errorf(plugin.KindInvalid, "user %s does not exist", request.User)
		}
		arguments = append(arguments, "-S", user, "-G", cmpOr(group, "0"))
	}
	r.command = exec.Command("nsenter", append(append(arguments, "--"), request.Argv...)...)
	r.command.Env = r.environment(request.Env)
	r.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return nil
}

func cmpOr(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func (r *running) environment(extra map[string]string) []string {
	values := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", markVariable: r.mark}
	for _, more := range []map[string]string{r.sandbox.Env, extra} {
		for name, value := range more {
			values[name] = value
		}
	}
	environment := []string{}
	for name, value := range values {
		environment = append(environment, name+"="+value)
	}
	return environment
}

func (r *running) start() error {
	stdin, err := r.command.StdinPipe()
	if err != nil {
		return err
	}
	for target, writer := range map[*io.Writer]io.Writer{&r.command.Stdout: r.stdio.Stdout, &r.command.Stderr: r.stdio.Stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		defer write.Close()
		*target = write
		r.outputs = append(r.outputs, read)
		go func() { r.written <- r.copyOutput(writer, read) }()
	}
	if err := r.command.Start(); err != nil {
		if errors.Is(err, syscall.E2BIG) {
			return plugin.Errorf(plugin.KindTooLarge, "the command and its environment are longer than Linux takes")
		}
		return err
	}
	go func() {
		defer stdin.Close()
		_, _ = io.Copy(stdin, r.stdio.Stdin)
	}()
	go r.passSignals()
	return nil
}

// copyOutput copies until the pipe's end or, once the command has ended, until the
// pipe is empty: processes that it left behind may hold the pipe for ever.
func (r *running) copyOutput(w io.Writer, read *os.File) error {
	defer read.Close()
	buffer := make([]byte, 64<<10)
	last := false
	for {
		n, err := read.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && last:
			return nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		if r.hasEnded() {
			last = true
			if err := read.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				return err
			}
		}
	}
}

func (r *running) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func (r *running) passSignals() {
	for {
		select {
		case name, ok := <-r.stdio.Signals:
			if !ok {
				return
			}
			// nsenter's child is the command itself.
			if pid, ok := onlyChild(r.command.Process.Pid); ok {
				_ = syscall.Kill(pid, unix.SignalNum("SIG"+name))
			}
		case <-r.ended:
			return
		}
	}
}

// wait runs the command to its end, its deadline or ctx's.
func (r *running) wait(ctx context.Context, timeout time.Duration) (plugin.ExitStatus, error) {
	if err := r.start(); err != nil {
		return plugin.ExitStatus{}, err
	}
	if r.stdio.Started != nil {
		r.stdio.Started(0)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = r.command.Wait() // the status says it, too
	}()
	deadline := make(<-chan time.Time)
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		deadline = timer.C
	}
	var outputErr error
	timedOut, collected := false, 0
	for alive := true; alive; {
		select {
		case <-exited:
			alive = false
		case <-deadline:
			timedOut = true
			r.kill()
		case <-ctx.Done():
			r.kill()
			<-exited
		case err := <-r.written:
			collected++
			if outputErr = errors.Join(outputErr, err); err != nil {
				r.kill()
			}
		}
	}
	if r.flaws.killsBackground {
		r.kill()
	}
	close(r.ended)
	outputErr = errors.Join(outputErr, r.drain(collected))
	switch {
	case ctx.Err() != nil:
		return plugin.ExitStatus{}, ctx.Err()
	case outputErr != nil:
		return plugin.ExitStatus{}, outputErr
	case !r.sandbox.alive():
		return plugin.ExitStatus{}, plugin.NotFoundf("sandbox %s ended during the command", r.sandbox.ID)
	case timedOut:
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	}
	return status(r.command.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// drain lets what is in the pipes out. What the command itself wrote is there already.
func (r *running) drain(collected int) error {
	var failed error
	for _, output := range r.outputs {
		if !r.flaws.waitsForPipes {
			_ = output.SetReadDeadline(time.Now()) // an error means that it is closed
		}
	}
	for ; collected < len(r.outputs); collected++ {
		failed = errors.Join(failed, <-r.written)
	}
	return failed
}

func status(wait syscall.WaitStatus) plugin.ExitStatus {
	if wait.Signaled() {
		return plugin.ExitStatus{
			Code: 128 + int(wait.Signal()), Reason: plugin.ExitSignaled,
			Signal: strings.TrimPrefix(unix.SignalName(wait.Signal()), "SIG"),
		}
	}
	return plugin.Exited(wait.ExitStatus())
}

// kill ends all processes of the command, until there are none.
func (r *running) kill() {
	if r.flaws.sparesChildren {
		_ = r.command.Process.Kill() // it may have ended
		return
	}
	for range 50 {
		left := r.processes()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// processes are those that have the command's mark in their environment.
func (r *running) processes() []int {
	mark := []byte(markVariable + "=" + r.mark)
	found := []int{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, mark) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && startTime(pid) != "" {
			found = append(found, pid)
		}
	}
	return found
}
