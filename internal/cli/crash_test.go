//go:build linux

package cli_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

// crashesVariable is how many random crashes there are instead of the few that a
// quick run has.
const crashesVariable = "SANDBOXCTL_TEST_CRASHES"

// crashes returns how many random crashes to make.
func crashes(t *testing.T, quick int) int {
	t.Helper()
	text := os.Getenv(crashesVariable)
	if text == "" {
		return quick
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", crashesVariable, err)
	}
	return n
}

// moment is a step of a command at which somebody dies.
type moment struct {
	// command has %s where the place's directory goes.
	command string
	step    faultdriver.Step
	// state is what the ledger must have reached besides, if anything.
	state string
	// box says that a ready sandbox exists before; expired, that its lease is over.
	box, expired bool
	// kept says that a sandbox is there in the end.
	kept bool
}

func moments() map[string]moment {
	const (
		create = "create --network open --name box"
		run    = "run -i --network open --name box -- cat"
	)
	return map[string]moment{
		"create before the intent":     {command: create, step: faultdriver.StepConfigure},
		"create after the intent":      {command: create, step: faultdriver.StepCreate, state: "intent"},
		"create once it was made":      {command: create, step: faultdriver.StepMade, state: "intent"},
		"create after the ref":         {command: create, step: faultdriver.StepTold, state: "created"},
		"run before the intent":        {command: run, step: faultdriver.StepConfigure},
		"run after the intent":         {command: run, step: faultdriver.StepCreate, state: "intent"},
		"run once it was made":         {command: run, step: faultdriver.StepMade, state: "intent"},
		"run after the ref":            {command: run, step: faultdriver.StepTold, state: "created"},
		"run before the command":       {command: run, step: faultdriver.StepExec, state: "ready", kept: true},
		"exec before the command":      {command: "exec -i box -- cat", step: faultdriver.StepExec, box: true, kept: true},
		"cp into it":                   {command: "cp %s/config.yaml box:file", step: faultdriver.StepWrite, box: true, kept: true},
		"cp out of it":                 {command: "cp box:file %s/out/file", step: faultdriver.StepRead, box: true, kept: true},
		"rm before the removal":        {command: "rm box", step: faultdriver.StepDestroy, box: true, kept: true},
		"rm after the removal":         {command: "rm box", step: faultdriver.StepDestroyed, box: true},
		"gc before the listing":        {command: "gc", step: faultdriver.StepList, box: true, expired: true},
		"gc before the removal":        {command: "gc", step: faultdriver.StepDestroy, box: true, expired: true},
		"gc after the removal":         {command: "gc", step: faultdriver.StepDestroyed, box: true, expired: true},
		"gc of a live one's neighbour": {command: "gc", step: faultdriver.StepList, box: true, kept: true},
	}
}

// victims are the ways to die at a moment. Each returns when sandboxctl has ended.
func victims() map[string]func(*place, *running, moment) {
	return map[string]func(*place, *running, moment){
		"sandboxctl": func(p *place, r *running, m moment) {
			r.signal(syscall.SIGKILL)
			r.wait()
			p.awaitNoDriver()
			p.openGate(m.step)
		},
		"driver": func(p *place, r *running, m moment) {
			p.killDrivers(syscall.SIGKILL)
			p.openGate(m.step)
			// What is waited for by a guest ends.
			_ = r.stdin.Close()
			r.wait()
		},
		"both": func(p *place, r *running, m moment) {
			r.signal(syscall.SIGSTOP)
			p.killDrivers(syscall.SIGKILL)
			r.signal(syscall.SIGKILL)
			r.wait()
			p.awaitNoDriver()
			p.openGate(m.step)
		},
		"state directory": func(p *place, r *running, m moment) {
			// Root may write to whatever is read-only; nobody can to what is no directory.
			lost := filepath.Join(p.state, "locks")
			if m.box {
				lost = filepath.Join(p.state, "records")
			}
			if err := os.Rename(lost, lost+"-away"); err != nil {
				p.t.Fatal(err)
			}
			if err := os.WriteFile(lost, nil, 0o600); err != nil {
				p.t.Fatal(err)
			}
			p.openGate(m.step)
			_ = r.stdin.Close()
			r.wait()
			if err := os.Remove(lost); err != nil {
				p.t.Fatal(err)
			}
			if err := os.Rename(lost+"-away", lost); err != nil {
				p.t.Fatal(err)
			}
		},
	}
}

// TestCrashes lets somebody die at every step of every command that changes anything.
// A gc later there is nothing, or a sandbox that is ready and listed.
func TestCrashes(t *testing.T) {
	programs := buildFaultyPlaces(t)
	for name, m := range moments() {
		for victim, die := range victims() {
			parallel(t, name+"/"+victim, func(t *testing.T) {
				p := newFaultyPlace(t, programs, "")
				p.crashAt(m, die)
				p.collect()
				left := p.check()
				wanted := m.kept
				if victim == "driver" && (!m.box || m.step == faultdriver.StepDestroy) || victim == "state directory" && m.step == faultdriver.StepDestroy {
					// Sandboxctl lives and removes what it was about to, with a new driver.
					wanted = false
				}
				if kept := len(left) == 1; kept != wanted {
					t.Errorf("left: %q, wanted something to be left: %v", left, wanted)
				}
				if len(left) > 0 {
					p.must("rm", left[0])
				}
				// The name is free again.
				p.must("run", "--network", "open", "--name", "box", "--", "true")
				p.check()
			})
		}
	}
}

func (p *place) crashAt(m moment, die func(*place, *running, moment)) {
	p.t.Helper()
	if m.box {
		p.must("create", "--network", "open", "--name", "box", "--ttl", map[bool]string{true: "1s", false: "1h"}[m.expired])
		p.must("exec", "box", "--", "sh", "-c", "echo content >file")
	}
	if m.expired {
		time.Sleep(time.Second)
	}
	p.closeGate(m.step)
	r := p.start(strings.Fields(strings.ReplaceAll(m.command, "%s", p.dir))...)
	p.awaitGate(m.step)
	if m.state != "" {
		p.awaitState(m.state)
	}
	die(p, r, m)
}

// localMoment is a step of a command with the local driver, seen from its files.
type localMoment struct {
	command []string
	// box says that a ready sandbox exists before; expired, that its lease is over.
	box, expired bool

	reached func(*place, *running) bool
	// kept says that a sandbox is there in the end for certain; otherwise it depends on
	// who was quicker.
	kept bool
}

func localMoments() map[string]localMoment {
	file := func(name string) func(*place, *running) bool {
		return func(p *place, _ *running) bool {
			found, _ := filepath.Glob(filepath.Join(p.backend, "*", name))
			return len(found) > 0
		}
	}
	state := func(wanted string) func(*place, *running) bool {
		return func(p *place, _ *running) bool {
			for _, is := range p.records() {
				if is == wanted {
					return true
				}
			}
			return false
		}
	}
	printed := func(_ *place, r *running) bool { return r.stdout.String() != "" }
	locked := func(p *place, _ *running) bool {
		locks, _ := filepath.Glob(filepath.Join(p.state, "locks", "sb-*"))
		return len(locks) > 0
	}
	create, run := []string{"create"}, []string{"run", "-i", "--", "cat"}
	return map[string]localMoment{
		"create after the intent":        {command: create, reached: state("intent")},
		"create with its directory made": {command: create, reached: file(".")},
		"create with its record":         {command: create, reached: file("sandbox.json")},
		"create after the ref":           {command: create, reached: state("created")},
		"create with its process":        {command: create, reached: file("pid")},
		"run after the ref":              {command: run, reached: state("created")},
		"run with its command":           {command: []string{"run", "-i", "--", "sh", "-c", "echo up; cat"}, reached: printed},
		"exec":                           {command: []string{"exec", "box", "--", "sh", "-c", "echo up; sleep 54321"}, box: true, reached: printed, kept: true},
		"cp": {command: []string{"cp", "DRIVER", "box:"}, box: true, kept: true, reached: func(p *place, _ *running) bool {
			// The helper's call is one more process of the sandbox's.
			return len(p.processes(p.backend)) > 2
		}},
		"rm": {command: []string{"rm", "box"}, box: true, reached: locked},
		"gc": {command: []string{"gc"}, box: true, expired: true, reached: locked},
	}
}

// TestLocalCrashes is TestCrashes with real sandboxes. Nothing holds the driver, so the
// moment has passed a little when somebody dies.
func TestLocalCrashes(t *testing.T) {
	programs := buildPlaces(t, module+"/drivers/local/cmd/sandboxctl-driver-local", module+"/drivers/local/cmd/sandboxctl-guest")
	victims := map[string]func(*place, *running){
		"sandboxctl": func(_ *place, r *running) { r.signal(syscall.SIGKILL) },
		"driver":     func(p *place, r *running) { p.killDrivers(syscall.SIGKILL); _ = r.stdin.Close() },
	}
	for name, m := range localMoments() {
		for victim, die := range victims {
			parallel(t, name+"/"+victim, func(t *testing.T) {
				p := newLocalPlace(t, programs)
				if m.box {
					p.must("create", "--name", "box", "--ttl", map[bool]string{true: "1ms", false: "1h"}[m.expired])
				}
				var command []string
				for _, arg := range m.command {
					command = append(command, strings.Replace(arg, "DRIVER", p.driver, 1))
				}
				r := p.start(command...)
				await(t, "the moment", func() bool { return m.reached(p, r) || r.hasEnded() })
				if r.hasEnded() {
					t.Log("it was too quick")
				}
				die(p, r)
				r.wait()
				p.awaitNoDriver()
				if m.kept {
					p.noSleeper()
					p.noPart()
				}
				p.collect()
				left := p.check()
				if m.kept && len(left) != 1 {
					t.Errorf("left: %q", left)
				}
				for _, id := range left {
					p.must("rm", id)
				}
				p.check()
			})
		}
	}
}

// noPart checks that box has a whole copy of the driver, or nothing.
func (p *place) noPart() {
	p.t.Helper()
	found := p.must("exec", "box", "--", "sh", "-c", "ls -A /workspace; cat /workspace/* 2>/dev/null | wc -c")
	info, err := os.Stat(p.driver)
	if err != nil {
		p.t.Fatal(err)
	}
	whole := fmt.Sprintf("%s\n%d\n", filepath.Base(p.driver), info.Size())
	if found != "0\n" && found != whole {
		p.t.Errorf("the guest has %q", found)
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

// TestRandomCrashes kills sandboxctl, its driver or both at any moment.
func TestRandomCrashes(t *testing.T) {
	programs := buildPlaces(t, module+"/internal/faultdriver/cmd/sandboxctl-driver-faulty",
		module+"/drivers/local/cmd/sandboxctl-driver-local", module+"/drivers/local/cmd/sandboxctl-guest")
	parallel(t, "faulty", func(t *testing.T) {
		newFaultyPlace(t, programs, "").crashAtRandom(crashes(t, 60), 60*time.Millisecond, "--network", "open")
	})
	parallel(t, "local", func(t *testing.T) {
		newLocalPlace(t, programs).crashAtRandom(crashes(t, 60)/4, 250*time.Millisecond)
	})
}

// crashAtRandom goes on in the same place, so that each crash meets what the earlier
// ones have left. usual is about how long a command takes.
func (p *place) crashAtRandom(rounds int, usual time.Duration, createFlags ...string) {
	p.t.Helper()
	survived := 0
	for round := range rounds {
		var box string
		command := [][]string{
			append([]string{"create"}, createFlags...),
			append(append([]string{"run"}, createFlags...), "--", "echo", "hello"),
			{"exec", "box", "--", "echo", "hello"},
			{"cp", filepath.Join(p.dir, "config.yaml"), "box:file"},
			{"rm", "box"},
			{"gc"},
		}[rand.IntN(6)]
		if command[0] == "gc" || command[0] == "exec" || command[0] == "cp" || command[0] == "rm" {
			box = fmt.Sprintf("box%d", round)
			p.must(append([]string{"create", "--name", box, "--ttl", map[bool]string{true: "1ms", false: "1h"}[command[0] == "gc"]}, createFlags...)...)
			for i, arg := range command {
				command[i] = strings.Replace(arg, "box", box, 1)
			}
		}
		delay := time.Duration(rand.Int64N(int64(usual)))
		r := p.start(command...)
		time.Sleep(delay)
		victim := rand.IntN(3)
		if victim > 0 {
			p.killDrivers(syscall.SIGKILL)
		}
		if victim < 2 {
			r.signal(syscall.SIGKILL)
		}
		r.wait()
		p.awaitNoDriver()
		p.collect()
		for _, id := range p.check() {
			survived++
			p.must("rm", id)
		}
		if p.t.Failed() {
			p.t.Fatalf("in round %d: %q, %s after its start, victim %d\nstdout: %s\nstderr: %s", round, command, delay, victim, r.stdout, r.stderr)
		}
	}
	p.collect()
	if left := p.check(); len(left) > 0 {
		p.t.Errorf("in the end there are %q", left)
	}
	p.t.Logf("%d crashes, %d sandboxes survived and were listed", rounds, survived)
}
