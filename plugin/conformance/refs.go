package conformance

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func refCases() []Case {
	return []Case{
		{
			ID: "lifecycle.destroy", Group: GroupLifecycle, run: checkDestroy,
			Reason: "clean-up is repeated after crashes: what is gone already is no error, and is told apart",
			Source: "airflow 10; reports 12",
		},
		{
			ID: "lifecycle.destroy-at-once", Group: GroupLifecycle, run: checkDestroyAtOnce,
			Reason: "two sweeps at the same time must both succeed",
			Source: "airflow 98",
		},
		{
			ID: "lifecycle.after-destroy", Group: GroupLifecycle, run: checkAfterDestroy,
			Reason: "a sandbox that is gone ends the caller's work; a missing file does not: they may not be mixed up",
			Source: "airflow 13, 80; reports 14",
		},
		{
			ID: "lifecycle.lookup-by-id", Group: GroupLifecycle, run: checkLookupByID,
			Reason: "a host that lost the handle still has the id",
			Source: "design 3; reports 35",
		},
		{
			ID: "lifecycle.unknown-handle", Group: GroupLifecycle, run: checkUnknownHandle,
			Reason: "a handle that makes no sense must not reach another sandbox",
			Source: "airflow 14",
		},
		{
			ID: "lifecycle.destroy-under-exec", Group: GroupLifecycle, run: checkDestroyUnderExec,
			Reason: "a command whose sandbox went away did not exit 0",
			Source: "reports 3, 14; airflow 52",
		},
	}
}

func checkDestroy(t *T) {
	box := t.fresh()
	if gone, err := t.driver().Destroy(t.ctx, box.ref); err != nil || gone {
		t.Errorf("the first destroy: already gone %v, error %v; want false and none", gone, err)
	}
	if gone, err := t.driver().Destroy(t.ctx, box.ref); err != nil || !gone {
		t.Errorf("the second destroy: already gone %v, error %v; want true and none", gone, err)
	}
	if t.row(box.ref.ID) != nil {
		t.Errorf("a destroyed sandbox is still listed")
	}
	if gone, err := t.driver().Destroy(t.ctx, plugin.Ref{ID: "sb-" + random(12)}); err != nil || !gone {
		t.Errorf("destroying what never was: already gone %v, error %v; want true and none", gone, err)
	}
}

func checkDestroyAtOnce(t *T) {
	box := t.fresh()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := t.driver().Destroy(t.ctx, box.ref); err != nil {
				t.Errorf("one of three destroys at once failed: %v", err)
			}
		})
	}
	all.Wait()
	if t.row(box.ref.ID) != nil {
		t.Errorf("the sandbox is still listed")
	}
}

func checkAfterDestroy(t *T) {
	box := t.fresh()
	if _, err := t.driver().Destroy(t.ctx, box.ref); err != nil {
		t.Fatalf("destroy failed: %v", err)
	}
	gone := func(what string, err error) { t.wantKind(what+" after destroy", err, plugin.KindNotFound) }
	got := box.exec(&plugin.ExecRequest{Argv: []string{"true"}})
	gone("exec", got.err)
	if got.stdout+got.stderr != "" {
		t.Errorf("a command in a sandbox that is gone printed %s %s", short(got.stdout), short(got.stderr))
	}
	_, err := t.driver().Inspect(t.ctx, box.ref)
	gone("inspect", err)
	if t.info().Capabilities.Files.Files {
		gone("reading a file", t.driver().ReadFile(t.ctx, box.ref, "/etc/passwd", 0, io.Discard))
		_, err := t.driver().Stat(t.ctx, box.ref, "/etc/passwd", true)
		gone("stat", err)
		_, err = t.driver().ReadDir(t.ctx, box.ref, "/")
		gone("listing", err)
		gone("writing a file", box.write("new", "x"))
	}
	if t.info().Capabilities.Files.Archive {
		gone("archiving", t.driver().GetArchive(t.ctx, box.ref, "/etc/passwd", false, io.Discard))
	}
	if t.info().Capabilities.Lease.Renew {
		_, err := t.driver().Renew(t.ctx, box.ref, time.Now().Add(t.session.lease(leaseOfCases)))
		gone("renew", err)
	}
}

func checkLookupByID(t *T) {
	box := t.fresh()
	lost := plugin.Ref{ID: box.ref.ID}
	if seen, err := t.driver().Inspect(t.ctx, lost); err != nil || seen.ID != box.ref.ID {
		t.Errorf("inspect by id alone: %v", err)
	}
	if gone, err := t.driver().Destroy(t.ctx, lost); err != nil || gone {
		t.Errorf("destroy by id alone: already gone %v, error %v", gone, err)
	}
	if t.row(box.ref.ID) != nil {
		t.Errorf("the sandbox is still listed")
	}
}

func checkUnknownHandle(t *T) {
	box := t.fresh()
	for _, handle := range []string{"None", "null", "../..", "\x00", "no such thing"} {
		stranger := *box
		stranger.ref = plugin.Ref{ID: "sb-" + random(12), Handle: []byte(handle)}
		got := stranger.exec(&plugin.ExecRequest{Argv: []string{"true"}})
		t.wantKind("exec with the handle "+short(handle), got.err, plugin.KindNotFound, plugin.KindInvalid)
	}
	t.wantExit("a command afterwards", box.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
}

func checkDestroyUnderExec(t *T) {
	box := t.fresh()
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Second)
	defer cancel()
	running := make(chan struct{})
	ended := make(chan ran, 1)
	go func() {
		var once sync.Once
		status, err := t.driver().Exec(ctx, box.ref, shell("echo running; sleep 300"), &plugin.ExecIO{
			Stdout: writerFunc(func(data []byte) (int, error) { once.Do(func() { close(running) }); return len(data), nil }),
			Stderr: io.Discard,
		})
		ended <- ran{status: status, err: err}
	}()
	select {
	case <-running:
	case got := <-ended:
		t.Fatalf("the command did not run: %s %v", describe(got), got.err)
	}
	if _, err := t.driver().Destroy(t.ctx, box.ref); err != nil {
		t.Errorf("destroy during a command failed: %v", err)
	}
	got := <-ended
	switch {
	case ctx.Err() != nil:
		t.Errorf("the command did not end with its sandbox")
	case got.err == nil && (got.status.Code == 0 || got.status.Reason == plugin.ExitTimedOut):
		t.Errorf("the command ended with %s though its sandbox was destroyed under it", describe(got))
	}
}

// writerFunc is a function as an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }
