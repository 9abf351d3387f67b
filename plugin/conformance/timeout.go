package conformance

import (
	"io"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// grace is how long the end of a command may take beyond its timeout; see design 6.
const grace = 10 * time.Second

func timeoutCases() []Case {
	return []Case{
		{
			ID: "timeout.kills-the-tree", Group: GroupTimeout, run: checkTimeoutTree,
			Reason: "a timeout that kills only the shell leaves its children running and billing",
			Source: "airflow 35, 46; reports 32",
		},
		{
			ID: "timeout.survival", Group: GroupTimeout, run: checkSurvival,
			Reason: "whether sandbox and files outlive a timeout is claimed, and has to be true",
			Source: "airflow 35",
		},
		{
			ID: "timeout.term-ignored", Group: GroupTimeout, run: checkTermIgnored,
			Reason: "a command that ignores SIGTERM is killed, and that is still a timeout",
			Source: "airflow 36",
		},
		{
			ID: "timeout.not-yet", Group: GroupTimeout, run: checkNotYet,
			Reason: "elapsed time decides: 124, 137 and a quick kill within the time are the command's own",
			Source: "airflow 37, 38, 39, 41; reports 7; design 6",
		},
		{
			ID: "timeout.fraction", Group: GroupTimeout, run: checkFraction,
			Reason: "a limit below a second is a limit; rounded down to zero it would be none",
			Source: "airflow 43",
		},
		{
			ID: "timeout.escaped-session", Group: GroupTimeout, run: checkSetsid,
			Reason: "a process in a session of its own must not hold up the call",
			Source: "airflow 49",
		},
		{
			ID: "timeout.open-stdin", Group: GroupTimeout, Needs: []Need{needsStdin}, run: checkTimeoutStdin,
			Reason: "a command that waits for input ends at its time, too",
			Source: "reports 15",
		},
		{
			ID: "timeout.longest", Group: GroupTimeout, Needs: []Need{needsMaxTimeout}, run: checkLongest,
			Reason: "a limit that the backend shortens must be told",
			Source: "airflow 44",
		},
	}
}

// wantTimeout checks that a command ended at its limit.
func (t *T) wantTimeout(what string, got ran, limit time.Duration) {
	t.wantExit(what, got, 0, plugin.ExitTimedOut)
	if got.took < limit {
		t.Errorf("%s ended after %v, before its limit of %v", what, got.took.Round(time.Millisecond), limit)
	}
	if got.took > limit+grace {
		t.Errorf("%s ended %v after its limit", what, (got.took - limit).Round(time.Millisecond))
	}
}

func checkTimeoutTree(t *T) {
	box := t.fresh().mkdir()
	got := box.exec(&plugin.ExecRequest{Argv: []string{"sh", "-c", threeSleeps}, Workdir: box.dir, Timeout: 2 * time.Second})
	t.wantTimeout("the command", got, 2*time.Second)
	if !t.info().Capabilities.Exec.SurvivesTimeout {
		return // the sandbox took the processes with it; timeout.survival looks at that
	}
	if n := box.alive(box.path("pids")); n != 0 {
		t.Errorf("%d of its processes still run", n)
	}
}

func checkSurvival(t *T) {
	box := t.fresh()
	box.must("echo before >file")
	request := shell("sleep 60")
	request.Timeout = time.Second
	got := box.exec(request)
	t.wantTimeout("the command", got, time.Second)
	after := box.exec(shell(`cat "$1"`, box.path("file")))
	if t.info().Capabilities.Exec.SurvivesTimeout {
		if got.status.SandboxTerminated {
			t.Errorf("the timeout ended the sandbox, though exec.survives_timeout is claimed")
		}
		t.wantExit("a command afterwards", after, 0)
		t.wantText("a file from before", after.stdout, "before\n")
		return
	}
	if !got.status.SandboxTerminated {
		t.Errorf("the result does not say that the sandbox was ended, and exec.survives_timeout is not claimed")
	}
	t.wantKind("a command afterwards", after.err, plugin.KindNotFound)
}

func checkTermIgnored(t *T) {
	request := shell("trap '' TERM INT HUP; sleep 60; sleep 60")
	request.Timeout = 2 * time.Second
	t.wantTimeout("a command that ignores signals", t.fresh().exec(request), 2*time.Second)
}

func checkNotYet(t *T) {
	box := t.fresh()
	for script, code := range map[string]int{"exit 124": 124, "exit 137": 137, "kill -9 $$": 137, "sleep 1; exit 0": 0, "sleep 1; exit 3": 3} {
		request := shell(script)
		request.Timeout = stuck
		got := box.exec(request)
		t.wantExit(script+" within its time", got, code, plugin.ExitExited, plugin.ExitSignaled)
		if got.took > promptly {
			t.Errorf("%s took %v", script, got.took.Round(time.Millisecond))
		}
	}
}

func checkFraction(t *T) {
	request := shell("sleep 14")
	request.Timeout = 300 * time.Millisecond
	t.wantTimeout("a command with 0.3s", t.fresh().exec(request), 300*time.Millisecond)
}

func checkSetsid(t *T) {
	box := t.fresh()
	if !box.has("setsid") {
		t.Skipf("the guest has no setsid")
	}
	request := shell("setsid sleep 40 & setsid sh -c 'trap \"\" TERM; sleep 40' & sleep 40")
	request.Timeout = 2 * time.Second
	t.wantTimeout("the command", box.exec(request), 2*time.Second)
}

func checkTimeoutStdin(t *T) {
	open, sender := io.Pipe()
	defer sender.Close()
	got := t.fresh().execWith(t.ctx, &plugin.ExecRequest{Argv: []string{"cat"}, Timeout: 2 * time.Second}, open)
	t.wantTimeout("cat with an open stdin", got, 2*time.Second)
}

func checkLongest(t *T) {
	longest := t.info().Capabilities.Exec.MaxTimeout
	var told time.Duration
	request := shell("true")
	request.Timeout = longest + time.Hour
	status, err := t.driver().Exec(t.ctx, t.shared().ref, request, &plugin.ExecIO{
		Stdout: io.Discard, Stderr: io.Discard, Started: func(applied time.Duration) { told = applied },
	})
	t.wantExit("the command", ran{status: status, err: err}, 0)
	if applied := max(told, status.AppliedTimeout); applied != longest {
		t.Errorf("the limit in force is reported as %v, want %v", applied, longest)
	}
}
