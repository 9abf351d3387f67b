package ledger

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestWaitSettled(t *testing.T) {
	tests := map[string]struct {
		act  func(t *testing.T, l *Ledger, c *child, id string)
		want func(r Record, err error) bool
	}{
		"ready": {
			func(t *testing.T, l *Ledger, c *child, id string) { _ = c.stdin.Close() },
			func(r Record, err error) bool { return err == nil && r.State == StateReady && !r.Abandoned() },
		},
		"killed": {
			// The zombie is not reaped before the end of the test, as under a parent that does not wait.
			func(t *testing.T, l *Ledger, c *child, id string) { _ = c.Process.Kill() },
			func(r Record, err error) bool { return err == nil && r.State == StateIntent && r.Abandoned() },
		},
		"gone": {
			func(t *testing.T, l *Ledger, c *child, id string) {
				if _, err := l.SetGone(t.Context(), id, "removed"); err != nil {
					t.Error(err)
				}
			},
			func(r Record, err error) bool { return err == nil && r.State == StateGone },
		},
		"dropped": {
			func(t *testing.T, l *Ledger, c *child, id string) {
				if err := l.Drop(t.Context(), id); err != nil {
					t.Error(err)
				}
			},
			func(r Record, err error) bool { return isNotFound(err) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if name == "killed" && runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
				t.Skip("this platform cannot tell that a process is dead")
			}
			l := open(t, t.TempDir())
			c := start(t, "hold", l.dir)
			id := c.line(t)
			short, cancel := context.WithTimeout(t.Context(), 3*settlePoll)
			defer cancel()
			if r, err := l.WaitSettled(short, id); !errors.Is(err, context.DeadlineExceeded) || r.ID != id {
				t.Fatalf("while the creator lives: %+v, %v", r, err)
			}
			var acting sync.WaitGroup
			defer acting.Wait()
			acting.Go(func() { test.act(t, l, c, id) })
			long, cancelLong := context.WithTimeout(t.Context(), time.Minute)
			defer cancelLong()
			if r, err := l.WaitSettled(long, id); !test.want(r, err) {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

func TestAbandonedNameSaysWhatToDo(t *testing.T) {
	l := open(t, t.TempDir())
	c := start(t, "hold", l.dir)
	c.line(t)
	_ = c.Process.Kill()
	_ = c.Wait()
	_, err := l.Begin(t.Context(), Intent{Name: "held", Driver: "fake"})
	if err == nil || !strings.Contains(told(err), "sandboxctl gc") {
		t.Errorf("got %v", err)
	}
}

func TestAlive(t *testing.T) {
	me := currentProcess()
	other := func(edit func(*Process)) Process { p := me; edit(&p); return p }
	tests := map[string]struct {
		process Process
		want    Liveness
	}{
		"this process":           {me, Alive},
		"a reused pid":           {other(func(p *Process) { p.Start += "1" }), Dead},
		"an unused pid":          {other(func(p *Process) { p.PID = 1<<31 - 1 }), Dead},
		"before the last reboot": {other(func(p *Process) { p.Boot = "older" }), Dead},
		"another host":           {other(func(p *Process) { p.Boot, p.Host = "other", "other" }), Unknown},
		"a renamed host":         {other(func(p *Process) { p.Host = "other" }), Alive},
		"another container":      {other(func(p *Process) { p.PIDNamespace = "pid:[1]" }), Unknown},
		"no start time":          {other(func(p *Process) { p.Start = "" }), Unknown},
		"nothing":                {Process{}, Unknown},
	}
	for name, test := range tests {
		if me.Start == "" {
			test.want = Unknown // this platform cannot tell
		}
		if got := test.process.Alive(); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	if me.PID != os.Getpid() {
		t.Errorf("the pid is %d", me.PID)
	}
}
