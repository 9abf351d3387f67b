package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func concurrencyCases() []Case {
	return []Case{
		{
			ID: "concurrency.20-execs", Group: GroupConcurrency, run: checkExecsAtOnce,
			Reason: "commands at the same time keep their own input, output and status",
			Source: "airflow 16; issue 3",
		},
		{
			ID: "concurrency.10-creates", Group: GroupConcurrency, Limit: 3 * time.Minute, run: checkCreatesAtOnce,
			Reason: "creates at the same time make as many sandboxes, each usable and its own",
			Source: "airflow 2; reports 44",
		},
		{
			ID: "concurrency.slow-exec", Group: GroupConcurrency, run: checkSlowExec,
			Reason: "one long command must not hold up others in its sandbox",
			Source: "airflow 1.11",
		},
		{
			ID: "concurrency.files", Group: GroupConcurrency, Needs: filesOnly, run: checkFilesAtOnce,
			Reason: "transfers at the same time do not mix, and a file is never seen half written",
			Source: "issue 3",
		},
	}
}

func checkExecsAtOnce(t *T) {
	box := t.shared()
	stdin := t.info().Capabilities.Exec.Stdin
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			text := strings.Repeat(fmt.Sprintf("command %d\n", i), 2000)
			request := shell(`cat; printf 'argument %s' "$1"; printf 'err %s' "$1" >&2; exit "$1"`, itoa(i))
			var got ran
			if stdin {
				got = box.execWith(t.ctx, request, strings.NewReader(text))
			} else {
				text, got = "", box.exec(request)
			}
			t.wantExit(fmt.Sprintf("command %d of 20", i), got, i)
			t.wantText(fmt.Sprintf("stdout of command %d", i), got.stdout, text+"argument "+itoa(i))
			t.wantText(fmt.Sprintf("stderr of command %d", i), got.stderr, "err "+itoa(i))
		})
	}
	all.Wait()
}

func checkCreatesAtOnce(t *T) {
	const count = 10
	var all sync.WaitGroup
	var mu sync.Mutex
	boxes := map[string]*box{}
	handles := map[string]bool{}
	for range count {
		all.Go(func() {
			sandbox, err := t.create(t.session.spec(), &recorder{})
			if err != nil {
				t.Errorf("one of %d creates failed: %v", count, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			boxes[sandbox.ID], handles[string(sandbox.Handle)] = t.open(sandbox), true
		})
	}
	all.Wait()
	if len(handles) != len(boxes) {
		t.Errorf("%d sandboxes have %d different handles", len(boxes), len(handles))
	}
	for id, box := range boxes {
		all.Go(func() {
			t.wantExit("writing in "+id, box.exec(shell(`mkdir "$2" && echo "$1" >"$2/who"`, id, box.dir)), 0)
		})
	}
	all.Wait()
	for id, box := range boxes {
		all.Go(func() {
			t.wantText("the file in "+id, box.exec(shell(`cat "$1/who"; rm -rf "$1"`, box.dir)).stdout, id+"\n")
		})
	}
	all.Wait()
	list, err := t.driver().List(t.ctx, plugin.ListRequest{})
	if err != nil {
		t.Fatalf("list failed: %v", err)
	}
	listed := 0
	for _, sandbox := range list.Sandboxes {
		if boxes[sandbox.ID] != nil {
			listed++
		}
	}
	if listed != len(boxes) {
		t.Errorf("%d of %d sandboxes are listed", listed, len(boxes))
	}
}

func checkSlowExec(t *T) {
	box := t.shared()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	started := newTrigger("started")
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		_, _ = t.driver().Exec(ctx, box.ref, shell("echo started; sleep 55"), &plugin.ExecIO{Stdout: started, Stderr: writerFunc(func(data []byte) (int, error) { return len(data), nil })})
	}()
	select {
	case <-started.seen:
	case <-slow:
		t.Errorf("the long command ended at once")
	}
	got := box.exec(&plugin.ExecRequest{Argv: []string{"true"}})
	t.wantExit("a command next to it", got, 0)
	if got.took > promptly {
		t.Errorf("it took %v", got.took.Round(time.Millisecond))
	}
	cancel()
	<-slow
}

func checkFilesAtOnce(t *T) {
	box := t.shared().mkdir()
	const size = 200_000
	if err := box.write("common", strings.Repeat("0", size)); err != nil {
		t.Fatalf("writing: %v", err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		digit := itoa(i)
		all.Go(func() {
			content := strings.Repeat(digit, size)
			if err := box.write("file-"+digit, content); err != nil {
				t.Errorf("writing one of eight files: %v", err)
				return
			}
			got, err := box.read("file-"+digit, 0)
			if err != nil {
				t.Errorf("reading one of eight files: %v", err)
			}
			t.wantText("file "+digit, got, content)
		})
		all.Go(func() {
			if err := box.write("common", strings.Repeat(digit, size)); err != nil {
				t.Errorf("writing the common file: %v", err)
			}
			got, err := box.read("common", 0)
			if err != nil {
				t.Errorf("reading the common file: %v", err)
			} else if len(got) != size || strings.Trim(got, got[:1]) != "" {
				t.Errorf("the common file was seen half written, with %d bytes", len(got))
			}
		})
	}
	all.Wait()
}

// leftoverCases come last, after everything was destroyed.
func leftoverCases() []Case {
	return []Case{{
		ID: "lifecycle.nothing-left", Group: GroupLifecycle, Serial: true, Limit: 3 * time.Minute, run: checkNothingLeft,
		Reason: "what the backend still has after everything was destroyed is billed for ever",
		Source: "airflow 5, 10; reports 34; design 1",
	}}
}

func checkNothingLeft(t *T) {
	t.session.dropShared()
	ours := func() []string {
		list, err := t.driver().List(t.ctx, plugin.ListRequest{Owner: t.session.owner})
		if err != nil {
			t.Fatalf("list failed: %v", err)
		}
		ids := []string{}
		for _, sandbox := range list.Sandboxes {
			if sandbox.Owner == t.session.owner {
				ids = append(ids, sandbox.ID)
			}
		}
		return ids
	}
	if !t.eventually(patience, func() bool { return len(ours()) == 0 }) {
		t.Errorf("these sandboxes are left: %s", strings.Join(ours(), ", "))
	}
}
