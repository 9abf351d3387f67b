//go:build linux

package cli_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

// made is what a create says.
type made struct {
	ID      string
	Created bool
	Error   struct{ Class, Message string }
}

func (r *running) made() (code int, said made) {
	r.p.t.Helper()
	code = r.wait()
	if err := json.Unmarshal([]byte(r.stdout.String()), &said); err != nil {
		r.p.t.Fatalf("stdout %q, stderr %q: %v", r.stdout, r.stderr, err)
	}
	return code, said
}

// same is a create that any number of processes may do.
func (p *place) same(flags ...string) *running {
	p.t.Helper()
	return p.start(append([]string{"create", "--json", "--network", "open", "--name", "same"}, flags...)...)
}

func TestSameName(t *testing.T) {
	programs := buildFaultyPlaces(t)
	t.Run("fifty at once", func(t *testing.T) {
		p := newFaultyPlace(t, programs, "")
		var all []*running
		for range 50 {
			all = append(all, p.same("--if-not-exists"))
		}
		ids, created := map[string]bool{}, 0
		for _, r := range all {
			code, said := r.made()
			if code != 0 {
				t.Fatalf("exit %d: %s", code, r.stdout)
			}
			if ids[said.ID] = true; said.Created {
				created++
			}
		}
		if len(ids) != 1 || created != 1 {
			t.Errorf("%d created %v", created, ids)
		}
		if left := p.check(); len(left) != 1 {
			t.Errorf("left: %q", left)
		}
	})
	parallel(t, "without asking for the same", func(t *testing.T) {
		p := newFaultyPlace(t, programs, "")
		var all []*running
		for range 8 {
			all = append(all, p.same())
		}
		codes := map[int]int{}
		for _, r := range all {
			code, _ := r.made()
			codes[code]++
		}
		if codes[0] != 1 || codes[6] != 7 {
			t.Errorf("exit codes: %v", codes)
		}
		p.check()
	})
	parallel(t, "another spec", func(t *testing.T) {
		p := newFaultyPlace(t, programs, "")
		p.same("--label", "job=1").made()
		code, said := p.same("--if-not-exists", "--label", "job=2").made()
		if code != 6 || said.Error.Class != "conflict" || !strings.Contains(said.Error.Message, "job") {
			t.Errorf("exit %d, %+v", code, said.Error)
		}
	})
	parallel(t, "the first dies", func(t *testing.T) {
		p := newFaultyPlace(t, programs, "")
		p.closeGate(faultdriver.StepTold)
		first := p.same("--if-not-exists")
		p.awaitState("created")
		second := p.same("--if-not-exists")
		first.signal(syscall.SIGKILL)
		first.wait()
		p.openGate(faultdriver.StepTold)
		if code, said := second.made(); code != 0 || !said.Created {
			t.Errorf("exit %d, %+v", code, said)
		}
		p.awaitNoDriver()
		p.ageSockets()
		if said := p.gc(0); len(said.Removed) > 0 {
			t.Errorf("gc had to remove %+v", said.Removed)
		}
		if left := p.check(); len(left) != 1 {
			t.Errorf("left: %q", left)
		}
	})
	parallel(t, "the first gives up", func(t *testing.T) {
		p := newFaultyPlace(t, programs, "")
		p.closeGate(faultdriver.StepCreate)
		first := p.same("--if-not-exists")
		p.awaitGate(faultdriver.StepCreate)
		second := p.same("--if-not-exists")
		await(t, "the second's driver", func() bool { return len(p.processes(p.driver)) == 2 })
		// From here to its waiting for the first it is a few milliseconds.
		time.Sleep(300 * time.Millisecond)
		first.interrupt(syscall.SIGTERM)
		p.openGate(faultdriver.StepCreate)
		if code, said := second.made(); code != 0 || !said.Created {
			t.Errorf("exit %d, %s", code, second.stdout)
		}
		if left := p.check(); len(left) != 1 {
			t.Errorf("left: %q", left)
		}
	})
	// The lease of the one that has the name is over: it is no longer anybody's.
	for what, flags := range map[string][]string{"an expired one": nil, "an expired one, if it does not exist": {"--if-not-exists"}} {
		parallel(t, what, func(t *testing.T) {
			p := newFaultyPlace(t, programs, "")
			_, old := p.same("--ttl", "1ms").made()
			time.Sleep(time.Millisecond)
			code, said := p.same(append(flags, "--ttl", "1h")...).made()
			if code != 0 || !said.Created || said.ID == old.ID {
				t.Errorf("exit %d, %+v", code, said)
			}
			if left := p.check(); len(left) != 1 {
				t.Errorf("left: %q", left)
			}
		})
	}
}
