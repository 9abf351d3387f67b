//go:build linux

package cli_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

func TestLeases(t *testing.T) {
	programs := buildFaultyPlaces(t)
	parallel(t, "of several", func(t *testing.T) { testLeases(t, programs) })
	parallel(t, "renewed twice at once", func(t *testing.T) { testTwoRenewals(t, programs) })
}

func testLeases(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	p.create("box", "--ttl", "2h", "--label", "job=1")
	before := p.must("inspect", "--field", "expires_at", "box")
	p.must("exec", "--timeout", "10s", "box", "--", "true")
	if after := p.must("inspect", "--field", "expires_at", "box"); after != before {
		t.Errorf("exec has moved the lease from %s to %s", before, after)
	}
	p.must("renew", "box", "--ttl", "3h")
	if after := p.must("inspect", "--field", "expires_at", "box"); after <= before {
		t.Errorf("renew has moved the lease from %s to %s", before, after)
	}
	p.create("short", "--ttl", "1ms", "--label", "job=1")
	if listed := p.must("ls", "--json"); strings.Count(listed, `"expired":true`) != 1 {
		t.Errorf("ls: %s", listed)
	}
	p.create("other")

	// Without a terminal nobody can be asked; with one, no is an answer.
	if code, _ := p.run("rm", "--all", "--label", "job=1"); code != 2 {
		t.Errorf("rm without a terminal: exit %d", code)
	}
	for _, answer := range []string{"n", "y"} {
		terminal := startTerminal(t, p.env, "rm", "--all", "--label", "job=1")
		terminal.await("Remove box, short?")
		terminal.typed(answer + "\n")
		code := terminal.exitCode()
		left := strings.Count(p.must("ls", "-q"), "\n")
		if answer == "n" && (code != 1 || left != 3) || answer == "y" && (code != 0 || left != 1) {
			t.Errorf("answered %q: exit %d, %d left, the terminal shows %q", answer, code, left, terminal.text())
		}
	}
	if listed := p.must("ls", "-q"); listed != "other\n" {
		t.Errorf("listed: %q", listed)
	}
}

// Of two renewals the backend and the ledger must believe the same one.
func testTwoRenewals(t *testing.T, programs string) {
	p := newFaultyPlace(t, programs, "")
	id := p.create("box", "--ttl", "1h")
	p.closeGate(faultdriver.StepRenewed)
	first := p.start("renew", "box", "--ttl", "2h")
	p.awaitGate(faultdriver.StepRenewed)
	first.signal(syscall.SIGSTOP)
	p.openGate(faultdriver.StepRenewed)
	second := p.start("renew", "box", "--ttl", "3h")
	// It has to wait for the first; were it not to, this is long enough for its end.
	select {
	case <-second.ended:
	case <-time.After(2 * time.Second):
	}
	first.signal(syscall.SIGCONT)
	for _, renewal := range []*running{first, second} {
		if code := renewal.wait(); code != 0 {
			t.Errorf("exit %d: %s", code, renewal.stderr)
		}
	}
	var inBackend, inLedger time.Time
	editJSON(t, filepath.Join(p.backend, id+".json"), func(stored map[string]any) {
		inBackend, _ = time.Parse(time.RFC3339Nano, stored["sandbox"].(map[string]any)["expireTime"].(string))
	})
	editJSON(t, filepath.Join(p.state, "records", id+".json"), func(record map[string]any) {
		inLedger, _ = time.Parse(time.RFC3339Nano, record["expires_at"].(string))
	})
	if !inBackend.Equal(inLedger) || time.Until(inLedger) < 150*time.Minute {
		t.Errorf("the backend has %s, the ledger %s", inBackend, inLedger)
	}
}
