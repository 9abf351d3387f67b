//go:build unix

package sbx

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// screen collects a terminal's output and tells when a text has appeared.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	seen chan struct{}
}

func newScreen(want string) *screen { return &screen{want: want, seen: make(chan struct{})} }

func (s *screen) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := strings.Contains(s.text.String(), s.want)
	s.text.Write(data)
	if !before && strings.Contains(s.text.String(), s.want) {
		close(s.seen)
	}
	return len(data), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestTerminal(t *testing.T) {
	everyDouble(t, func(t *testing.T, c sbxdouble.Config) {
		c.WarnLine = "stdout"
		b := newBench(t, c)
		spec := newSpec(plugin.NetworkNone)
		spec.Env = map[string]string{"SECRET": "of sandbox"}
		ref := b.create(spec)
		b.stop(string(ref.Handle)) // a terminal starts a stopped sandbox, too
		request := shell(`test -t 0 && test -t 1 && test -t 2 && stty size; echo "$SECRET $MORE"; read -r line; echo "got <$line>"; exit 7`)
		request.TTY, request.Stdin, request.Size, request.Env = true, true, plugin.TerminalSize{Rows: 31, Cols: 97}, map[string]string{"MORE": "it's"}
		out := newScreen("of sandbox it's")
		typed, keyboard := io.Pipe()
		go func() {
			<-out.seen
			io.WriteString(keyboard, "hello\n")
		}()
		status, err := b.Exec(t.Context(), ref, request, &plugin.ExecIO{Stdin: typed, Stdout: out, Stderr: io.Discard})
		keyboard.Close()
		if err != nil || status.Code != 7 || status.Reason != plugin.ExitExited {
			t.Errorf("%+v, %v", status, err)
		}
		if text := out.String(); !strings.HasPrefix(text, "31 97\r\nof sandbox it's\r\n") || !strings.HasSuffix(text, "got <hello>\r\n") {
			t.Errorf("%q", text)
		}
		if got := b.sh(ref, "find /tmp -name '.sandboxctl*'"); got != "" {
			t.Errorf("left in the guest: %s", got)
		}
		for _, call := range b.double.Calls(t) {
			if strings.Contains(strings.Join(call.Args, " "), "it's") {
				t.Error("the command's environment is in the arguments")
			}
		}
	})
}

func TestTerminalInterrupt(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	request := shell(`trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done`)
	request.TTY, request.Stdin = true, true
	out := newScreen("ready")
	typed, keyboard := io.Pipe()
	defer keyboard.Close()
	go func() {
		<-out.seen
		io.WriteString(keyboard, "\x03")
	}()
	status, err := b.Exec(t.Context(), ref, request, &plugin.ExecIO{Stdin: typed, Stdout: out, Stderr: io.Discard})
	if err != nil || status.Code != 9 || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("%+v, %v, %q", status, err, out)
	}
}

func TestTerminalEnds(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.open()
	request := shell("sleep 607 & sleep 607")
	request.TTY, request.Timeout = true, 500*time.Millisecond
	status, err := b.Exec(t.Context(), ref, request, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil || status.Reason != plugin.ExitTimedOut {
		t.Errorf("%+v, %v", status, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newScreen("up")
	go func() {
		<-out.seen
		cancel()
	}()
	request = shell("sleep 607 & echo up; sleep 607")
	request.TTY = true
	if status, err = b.Exec(ctx, ref, request, &plugin.ExecIO{Stdout: out, Stderr: io.Discard}); err != nil || status.Reason != plugin.ExitCanceled {
		t.Errorf("%+v, %v", status, err)
	}
	if left := b.survivors(ref, "sleep 607"); left != "" {
		t.Errorf("still running: %s", left)
	}
	request = argv("true")
	request.TTY, request.User = true, "nobody-here"
	_, err = b.Exec(t.Context(), ref, request, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
	wantError(t, err, plugin.KindInvalid)
	b.sbx("rm", "--force", string(ref.Handle))
	_, err = b.Exec(t.Context(), ref, request, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
	wantError(t, err, plugin.KindNotFound)
}

// Even a driver that was started on a terminal gives sbx none.
func TestNoTerminalForSbx(t *testing.T) {
	double := sbxdouble.Install(t, sbxdouble.Config{Preset: denyAll, LoggedOut: true})
	leader, follower, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer leader.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestListOnATerminal$")
	cmd.Env = append(os.Environ(), onTerminal+"="+double.Path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = follower, follower, follower
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	follower.Close()
	if err != nil {
		t.Fatal(err)
	}
	output := make(chan string, 1)
	go func() {
		var text []byte
		buffer := make([]byte, 4096)
		for {
			n, err := leader.Read(buffer)
			text = append(text, buffer[:n]...)
			if err != nil {
				output <- string(text)
				return
			}
		}
	}()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, <-output)
	}
	for _, call := range double.Calls(t) {
		if call.TTY {
			t.Errorf("sbx %q could open the terminal", call.Args)
		}
	}
	if len(double.Calls(t)) == 0 {
		t.Error("sbx was not called")
	}
}

const onTerminal = "SBX_TEST_ON_TERMINAL"

func TestListOnATerminal(t *testing.T) {
	binary := os.Getenv(onTerminal)
	if binary == "" {
		t.Skip("it is a part of TestNoTerminalForSbx")
	}
	d := New()
	d.config.StateDir, d.settings.Binary = t.TempDir(), binary
	_, err := d.List(t.Context(), plugin.ListRequest{})
	wantError(t, err, plugin.KindAuth)
}
