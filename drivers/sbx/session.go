package sbx

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// errNoAnswer means that sbx ended before the guest said anything.
var errNoAnswer = errors.New("the guest did not answer")

// session is one `sbx exec` with a supervisor at its other end.
type session struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	out    *gate
	err    *gate

	inMu sync.Mutex
	in   io.WriteCloser

	started, ended, failed chan struct{} // closed when it happens
	prompted               chan struct{} // closed when sbx asks to sign in
	planned                chan struct{} // closed when the guest has been told what to run
	exited                 chan struct{} // closed when sbx has ended and both streams are read
	closed                 chan struct{}
	senders                sync.WaitGroup // what may be blocked in send; ends with sbx
	stdin                  *joiner

	mu         sync.Mutex
	starts     int
	ends       int
	boot       string // which start of the guest this is
	supervisor string // its process in the guest
	end        []string
	refusal    error  // of the supervisor
	fed        bool   // the guest is being told what to run
	early      []byte // what came on its streams before, which sbx itself has printed
	failOnce   sync.Once
	promptOnce sync.Once
}

func startSession(p *program, rec *record, user string, stdio *plugin.ExecIO) (*session, error) {
	mark := newMark()
	ctx, cancel := context.WithCancel(context.Background())
	args := []string{"exec", "-i", "-w", "/"}
	if user != "" {
		args = append(args, "-u", user)
	}
	cmd := p.command(ctx, append(args, rec.Sandbox, "sh", "-c", announceScript, "sandboxctl", mark)...)
	s := &session{
		cmd: cmd, cancel: cancel,
		started: make(chan struct{}), ended: make(chan struct{}), failed: make(chan struct{}), exited: make(chan struct{}), closed: make(chan struct{}), stdin: newJoiner(),
		prompted: make(chan struct{}), planned: make(chan struct{}),
	}
	s.out = newGate(mark, s.writer(stdio.Stdout), func(words []string) { s.hear(words, true) })
	s.err = newGate(mark, s.writer(stdio.Stderr), func(words []string) { s.hear(words, false) })
	cmd.Stdout, cmd.Stderr = s.out, s.err
	in, err := cmd.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	s.in = in
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(s.exited)
		_ = cmd.Wait() // what it says is in the streams, its exit code decides nothing
	}()
	return s, nil
}

// writer takes for the command's output what comes once there is a command, and notices
// that the caller does not take output any more.
func (s *session) writer(out io.Writer) io.Writer {
	return writerFunc(func(data []byte) (int, error) {
		if s.isEarly(data) {
			return len(data), nil
		}
		n, err := out.Write(data)
		if err != nil {
			s.failOnce.Do(func() { close(s.failed) })
		}
		return n, err
	})
}

func (s *session) isEarly(data []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fed {
		s.early = append(s.early, data[:min(len(data), noiseLimit-len(s.early))]...)
	}
	return !s.fed
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }

// hear takes the supervisor's words. Each of start and end comes on both streams, so
// that what stands before it on either has been read when both were heard.
func (s *session) hear(words []string, onStdout bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch words[0] {
	case "start":
		s.hearStart(words, onStdout)
	case "end":
		if s.ends++; s.ends == 1 {
			s.end = words[1:]
		} else if s.ends == 2 {
			close(s.ended)
		}
	case promptWord:
		s.promptOnce.Do(func() { close(s.prompted) })
	case "nodir":
		s.refusal = errNoDir
	case "nosetsid":
		s.refusal = plugin.Errorf(plugin.KindInvalid, "the image has no setsid, by which a command is kept together").
			WithHint("Take an image with util-linux or busybox.")
	}
}

// hearStart takes the announcement, which comes before any of the command's bytes. A
// command can find out the mark; what looks like a start later is its own doing.
func (s *session) hearStart(words []string, onStdout bool) {
	if len(words) != 2 || s.starts == 2 {
		return
	}
	if onStdout {
		s.boot = words[1]
	} else if _, err := strconv.ParseUint(words[1], 10, 32); err == nil {
		s.supervisor = words[1]
	}
	if s.starts++; s.starts == 2 {
		close(s.started)
	}
}

var errNoDir = errors.New("no such working directory")

// awaitStart returns when the guest has announced itself.
func (s *session) awaitStart(ctx context.Context) error {
	timer := time.NewTimer(startLimit)
	defer timer.Stop()
	select {
	case <-s.started:
		return nil
	case <-s.prompted:
		return notSignedIn()
	case <-s.exited:
		return errNoAnswer
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return stalled([]string{"exec"}, startLimit)
	}
}

// send writes to the supervisor. It blocks while the guest does not read.
func (s *session) send(data []byte) {
	s.inMu.Lock()
	defer s.inMu.Unlock()
	_, _ = s.in.Write(data) // a session that is over is noticed on the other streams
}

// feed carries the plan, then stdin and signals to the supervisor, until the session is
// closed. The goroutine that reads stdin ends when the caller ends stdin, which the SDK
// does when Exec returns.
func (s *session) feed(plan []byte, request *plugin.ExecRequest, stdio *plugin.ExecIO) {
	s.mu.Lock()
	s.fed = true
	s.mu.Unlock()
	s.senders.Go(func() {
		s.send(plan)
		close(s.planned)
	})
	if request.Stdin {
		go s.stdin.fill(stdio.Stdin)
		s.senders.Go(s.sendStdin)
	}
	if stdio.Signals != nil {
		s.senders.Go(func() {
			<-s.planned
			for {
				select {
				case name, ok := <-stdio.Signals:
					if !ok {
						return
					}
					if validSignal(name) {
						s.send([]byte("s " + name + "\n"))
					}
				case <-s.closed:
					return
				}
			}
		})
	}
}

func validSignal(name string) bool {
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+") == ""
}

// waits says that the guest waits for a plan, for which it takes the "q" of close. Killing
// sbx would leave it waiting.
func (s *session) waits() bool {
	select {
	case <-s.started:
	default:
		return false
	}
	select {
	case <-s.planned:
		return false
	default:
		return true
	}
}

func (s *session) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func (s *session) endsWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.ended:
		return true
	case <-s.exited:
		return s.hasEnded()
	case <-timer.C:
		return false
	}
}

// result is how the command ended, as the supervisor said.
func (s *session) result(rec *record) (plugin.ExitStatus, error) {
	s.mu.Lock()
	refusal := s.refusal
	s.mu.Unlock()
	switch {
	case refusal == errNoDir:
		return plugin.ExitStatus{}, plugin.Errorf(plugin.KindInvalid, "the working directory does not exist in sandbox %s, or cannot be entered", rec.ID).
			WithHint("Name another with -w, or make it first.")
	case refusal != nil:
		return plugin.ExitStatus{}, refusal
	}
	return s.status(), nil
}

func (s *session) status() plugin.ExitStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return statusOf(s.end)
}

// statusOf reads the supervisor's "CODE FIRED SIGNALED".
func statusOf(end []string) plugin.ExitStatus {
	if len(end) != 3 {
		return plugin.ExitStatus{}
	}
	code, err := strconv.Atoi(end[0])
	switch {
	case err != nil:
		return plugin.ExitStatus{}
	case end[1] == "1":
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}
	case end[2] == "1" && code > 128:
		return plugin.ExitStatus{Code: code, Reason: plugin.ExitSignaled, Signal: signalName(code - 128)}
	}
	return plugin.Exited(code)
}

// signalName is a Linux signal's name without "SIG": the guest is Linux wherever the
// driver runs.
func signalName(number int) string {
	names := []string{
		"", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT",
		"CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
	}
	if number < len(names) {
		return names[number]
	}
	return strconv.Itoa(number)
}

// noise is what sbx itself printed. It may be asked for when the session has exited.
func (s *session) noise() string {
	<-s.exited
	return string(s.err.noise) + "\n" + string(s.out.noise) + "\n" + string(s.early)
}

// close ends the session: the supervisor is told that its report was heard, and sbx
// gets a moment to end by itself before it is killed.
func (s *session) close() {
	close(s.closed)
	s.stdin.close()
	s.senders.Go(func() {
		s.send([]byte("q\n"))
		s.inMu.Lock()
		defer s.inMu.Unlock()
		_ = s.in.Close()
	})
	if s.hasEnded() || s.waits() {
		timer := time.NewTimer(endLimit)
		defer timer.Stop()
		select {
		case <-s.exited:
		case <-timer.C:
		}
	}
	s.cancel()
	<-s.exited
	s.senders.Wait()
}
