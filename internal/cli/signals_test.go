//go:build linux

package cli_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

// signalLimit is how long an interrupted command may take: 4.9 s by its own clock, and
// something for a machine that is busy with other tests.
const signalLimit = 6 * time.Second

// signalCodes are the exit codes of commands that a signal ended.
func signalCodes() map[syscall.Signal]int {
	return map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129}
}

// interrupt sends a signal to the whole process group, as terminals and task runners
// do, and checks how sandboxctl ends.
func (r *running) interrupt(signal syscall.Signal) {
	r.p.t.Helper()
	sent := time.Now()
	if err := syscall.Kill(-r.command.Process.Pid, signal); err != nil && err != syscall.ESRCH {
		r.p.t.Fatal(err)
	}
	code := r.wait()
	if took := time.Since(sent); took > signalLimit {
		r.p.t.Errorf("it took %s", took)
	}
	switch {
	case code == signalCodes()[signal]:
		var said struct{ Error struct{ Class string } }
		if err := json.Unmarshal([]byte(r.stdout.String()), &said); err != nil || said.Error.Class != "interrupted" {
			r.p.t.Errorf("stdout says %q (%v), stderr %q", r.stdout, err, r.stderr)
		}
	case code == -1 && r.stdout.String() == "":
		// The signal came before sandboxctl had asked for it; nothing was begun.
	case code == 0:
		// It came too late.
	default:
		r.p.t.Errorf("exit code %d: %s%s", code, r.stdout, r.stderr)
	}
}

func TestSignals(t *testing.T) {
	programs := buildPlaces(t, module+"/internal/faultdriver/cmd/sandboxctl-driver-faulty",
		module+"/drivers/local/cmd/sandboxctl-driver-local", module+"/drivers/local/cmd/sandboxctl-guest")
	for _, step := range []faultdriver.Step{
		faultdriver.StepConfigure, faultdriver.StepCreate, faultdriver.StepMade, faultdriver.StepTold, faultdriver.StepExec, faultdriver.StepDestroy,
	} {
		for signal := range signalCodes() {
			parallel(t, string(step)+"/"+signal.String(), func(t *testing.T) { testSignalAt(t, programs, step, signal) })
		}
	}
	for command, step := range map[string]faultdriver.Step{
		"rm box": faultdriver.StepDestroy, "gc": faultdriver.StepDestroy, "gc --dry-run": faultdriver.StepList, "ls": faultdriver.StepList,
		"cp %s/config.yaml box:file": faultdriver.StepWrite, "cp box:file %s/out/file": faultdriver.StepRead, "exec box -- true": faultdriver.StepExec,
	} {
		parallel(t, command, func(t *testing.T) { testSignalToOther(t, programs, command, step) })
	}
	for fault, verb := range map[string]string{"create-hangs": "create", "exec-hangs": "run"} {
		parallel(t, fault, func(t *testing.T) { testDeafDriver(t, programs, fault, verb) })
	}
	parallel(t, "the same one twice", func(t *testing.T) {
		// As the timeout command sends it: to its child and then to the group.
		p := newFaultyPlace(t, programs, "")
		p.closeGate(faultdriver.StepMade)
		r := p.start("create", "--json", "--network", "open")
		p.awaitGate(faultdriver.StepMade)
		r.signal(syscall.SIGTERM)
		r.interrupt(syscall.SIGTERM)
		p.openGate(faultdriver.StepMade)
		if left := p.sandboxes(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	parallel(t, "ignored from the start", func(t *testing.T) { testIgnoredSignal(t, programs) })
	parallel(t, "random", func(t *testing.T) {
		newFaultyPlace(t, programs, "").interruptAtRandom(crashes(t, 15), 80*time.Millisecond, "--network", "open")
	})
	parallel(t, "random local", func(t *testing.T) {
		newLocalPlace(t, programs).interruptAtRandom(crashes(t, 24)/4, 300*time.Millisecond)
	})
}

// testIgnoredSignal starts a command as nohup does: the terminal's end is not its end.
func testIgnoredSignal(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	p.create("box")
	p.closeGate(faultdriver.StepExec)
	command := exec.Command("sh", "-c", `trap "" HUP; exec "$0" exec box -- echo done`, filepath.Join(p.dir, "sandboxctl"))
	command.Env = p.env
	var stdout strings.Builder
	command.Stdout = &stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitGate(faultdriver.StepExec)
	if err := command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	p.openGate(faultdriver.StepExec)
	if err := command.Wait(); err != nil || stdout.String() != "done\n" {
		t.Errorf("%v, stdout %q", err, stdout.String())
	}
}

// testSignalAt interrupts a run while its driver is at a step.
func testSignalAt(t *testing.T, programs string, step faultdriver.Step, signal syscall.Signal) {
	p := newFaultyPlace(t, programs, "")
	p.closeGate(step)
	r := p.start("run", "--json", "--network", "open", "--name", "box", "--", "true")
	p.awaitGate(step)
	r.interrupt(signal)
	if code := r.command.ProcessState.ExitCode(); code != signalCodes()[signal] && step != faultdriver.StepDestroy {
		t.Errorf("exit code %d", code)
	}
	if step == faultdriver.StepDestroy {
		// The command has ended well; only its sandbox could not be removed in time, and that is told.
		if !strings.Contains(r.stdout.String(), `"cleanup_error":{`) {
			t.Errorf("stdout: %q", r.stdout)
		}
		p.openGate(step)
		p.must("rm", "box")
	}
	p.awaitNoDriver()
	p.ageSockets()
	p.openGate(step)
	if said := p.gc(0); len(said.Removed) > 0 {
		t.Errorf("the command left %+v", said)
	}
	if left := p.check(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// testSignalToOther interrupts a command that finds a sandbox, which has to stay.
func testSignalToOther(t *testing.T, programs, command string, step faultdriver.Step) {
	p := newFaultyPlace(t, programs, "")
	p.create("box", "--ttl", map[bool]string{true: "1ms", false: "1h"}[strings.HasPrefix(command, "gc")])
	p.must("exec", "box", "--", "sh", "-c", "echo content >file")
	p.closeGate(step)
	verb, rest, _ := strings.Cut(strings.ReplaceAll(command, "%s", p.dir), " ")
	r := p.start(append([]string{verb, "--json"}, strings.Fields(rest)...)...)
	p.awaitGate(step)
	r.interrupt(syscall.SIGTERM)
	if code := r.command.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d: %s", code, r.stdout)
	}
	p.openGate(step)
	p.awaitNoDriver()
	if left := p.check(); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
	if files, _ := os.ReadDir(filepath.Join(p.dir, "out")); len(files) > 0 {
		t.Errorf("beside the target there is %q", files)
	}
}

// testDeafDriver interrupts a command whose driver does not hear of it. There still has
// to be a result in time, and what is left must be known.
func testDeafDriver(t *testing.T, programs, fault, verb string) {
	p := newFaultyPlace(t, programs, "")
	args := []string{verb, "--json", "--network", "open", "--name", "box", "--opt", "fault=" + fault}
	wanted := "created"
	if verb == "run" {
		args, wanted = append(args, "--", "true"), "ready"
	}
	r := p.start(args...)
	p.awaitState(wanted)
	// The record is there a moment before the driver is deaf.
	time.Sleep(100 * time.Millisecond)
	r.interrupt(syscall.SIGTERM)
	if code := r.command.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d", code)
	}
	p.awaitNoDriver()
	p.collect()
	for _, id := range p.check() {
		p.must("rm", id)
	}
}

// interruptAtRandom sends signals at any moment of create, run and exec. What the
// command made is gone afterwards, or gc names it.
func (p *place) interruptAtRandom(rounds int, usual time.Duration, createFlags ...string) {
	p.t.Helper()
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	for round := range rounds {
		verb := []string{"create", "run", "exec"}[rand.IntN(3)]
		command := append([]string{verb, "--json"}, createFlags...)
		if verb == "exec" {
			p.must(append([]string{"create", "--name", "box"}, createFlags...)...)
			command = []string{"exec", "--json", "box"}
		}
		if verb != "create" {
			command = append(command, "--", "sleep", "54321")
		}
		r := p.start(command...)
		delay := time.Duration(rand.Int64N(int64(usual)))
		time.Sleep(delay)
		r.interrupt(signals[rand.IntN(len(signals))])
		p.awaitNoDriver()
		if verb == "exec" {
			p.noSleeper()
		}
		p.collect()
		left := p.check()
		if verb == "exec" != (len(left) == 1) && (verb != "create" || r.command.ProcessState.ExitCode() != 0) {
			p.t.Errorf("left: %q", left)
		}
		for _, id := range left {
			p.must("rm", id)
		}
		if p.t.Failed() {
			p.t.Fatalf("in round %d: %q, %s after its start", round, command, delay)
		}
	}
}

// noSleeper checks that the interrupted command does not run any more in box.
func (p *place) noSleeper() {
	p.t.Helper()
	// In a sandbox of gVisor's, only the guest's own processes are seen.
	const look = `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep '^sleep 54321' || true`
	if running := p.must("exec", "box", "--", "sh", "-c", look); running != "" {
		p.t.Errorf("the guest still runs %q", running)
	}
}
