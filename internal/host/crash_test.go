//go:build unix

package host

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func execError(t *testing.T, driver *Driver, argv ...string) error {
	t.Helper()
	_, err := driver.Exec(t.Context(), plugin.Ref{}, &plugin.ExecRequest{Argv: argv}, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
	if err == nil {
		t.Fatal("no error")
	}
	return err
}

func wantCrash(t *testing.T, err error) *CrashError {
	t.Helper()
	var crash *CrashError
	if !errors.As(err, &crash) {
		t.Fatalf("got %T: %v", err, err)
	}
	var lost *plugin.ConnectionError
	if !errors.As(err, &lost) {
		t.Error("the crash does not unwrap to the lost connection")
	}
	return crash
}

func TestPanicInExecIsACrashWithItsFirstLine(t *testing.T) {
	driver := start(t, newHost(t, nil, "good"), "good")
	crash := wantCrash(t, execError(t, driver, "crash", "exec"))
	if crash.Error() != "driver good crashed in exec: panic: index out of range in exec" {
		t.Errorf("message %q", crash.Error())
	}
	if crash.ExitStatus != "exit status 2" || len(crash.LastLines) == 0 || !strings.HasPrefix(crash.LastLines[0], "panic: index") {
		t.Errorf("got %+v", crash)
	}
	// The next call fails in the same way, and soon.
	if _, err := driver.List(t.Context(), plugin.ListRequest{}); wantCrash(t, err).During != "list" {
		t.Errorf("got %v", err)
	}
}

func TestLastLinesOfAnExitHideSecrets(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Environ = append(o.Environ, "FAULT_TOKEN=secret-token") }, "good")
	crash := wantCrash(t, execError(t, start(t, h, "good"), "quit"))
	if crash.Error() != "driver good crashed in exec: exit status 9" {
		t.Errorf("message %q", crash.Error())
	}
	if len(crash.LastLines) != 1 || crash.LastLines[0] != "cannot go on with ***" {
		t.Errorf("last lines %q", crash.LastLines)
	}
}

func TestCallThatOutlivesItsLimitSaysSo(t *testing.T) {
	driver := start(t, newHost(t, nil, "good"), "good")
	_, err := call(t.Context(), driver, "list", 20*time.Millisecond, func(ctx context.Context) (*plugin.SandboxList, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	if plugin.KindOf(err) != plugin.KindUnavailable || !strings.Contains(err.Error(), "driver good did not answer within 20ms") {
		t.Errorf("got %v", err)
	}
	if !driver.calls.unfinished() {
		t.Error("the driver is not known to be still at work")
	}
}

func TestCallersDeadlineStaysADeadline(t *testing.T) {
	driver := start(t, newHost(t, nil, "waiting"), "waiting")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := driver.List(ctx, plugin.ListRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	cancel()
	if _, err := driver.List(ctx, plugin.ListRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestGrandchildDoesNotHoldUpClose(t *testing.T) {
	driver := start(t, newHost(t, nil, "good"), "good")
	inGroup, err := strconv.Atoi(strings.TrimSpace(run(t, driver, "grandchild", "group")))
	if err != nil {
		t.Fatal(err)
	}
	detached, err := strconv.Atoi(strings.TrimSpace(run(t, driver, "grandchild", "session")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(detached, syscall.SIGKILL) }()
	began := time.Now()
	driver.Close()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("Close took %s", took)
	}
	waitGone(t, inGroup, 30*time.Second)
	if !alive(detached) {
		t.Error("a process in a session of its own was killed")
	}
}

func TestGrandchildDoesNotHoldUpACrash(t *testing.T) {
	driver := start(t, newHost(t, nil, "good"), "good")
	detached, err := strconv.Atoi(strings.TrimSpace(run(t, driver, "grandchild", "session")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(detached, syscall.SIGKILL) }()
	began := time.Now()
	wantCrash(t, execError(t, driver, "quit"))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the crash took %s to show", took)
	}
}

func TestCloseLetsACallCleanUp(t *testing.T) {
	driver := start(t, newHost(t, nil, "good"), "good")
	mark := filepath.Join(t.TempDir(), "mark")
	ended := execInBackground(t, driver, "clean", mark)
	pid := driver.PID()
	driver.Close()
	driver.Close()
	<-ended
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the call did not clean up: %v", err)
	}
	waitGone(t, pid, 0)
}

func TestCloseEndsADriverThatIgnoresSigterm(t *testing.T) {
	driver := start(t, newHost(t, nil, "good"), "good")
	ended := execInBackground(t, driver, "deaf")
	pid := driver.PID()
	began := time.Now()
	driver.Close()
	if took := time.Since(began); took < stopLimit || took > stopLimit+30*time.Second {
		t.Errorf("Close took %s", took)
	}
	<-ended
	waitGone(t, pid, 0)
}

// execInBackground returns when the command has started; the channel closes at its end.
func execInBackground(t *testing.T, driver *Driver, argv ...string) <-chan struct{} {
	t.Helper()
	started, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = driver.Exec(t.Context(), plugin.Ref{}, &plugin.ExecRequest{Argv: argv}, &plugin.ExecIO{
			Stdout: io.Discard, Stderr: io.Discard, Started: func(time.Duration) { close(started) },
		})
	}()
	select {
	case <-started:
	case <-ended:
		t.Fatal("the command ended at once")
	}
	return ended
}
