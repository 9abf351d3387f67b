//go:build linux

package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/ledger"
)

const manyRecords = 10_000

// fillLedger writes many records like that of a real sandbox, without syncing each.
func (p *place) fillLedger(tb testing.TB, template string, count int) {
	tb.Helper()
	dir := filepath.Join(p.state, "records")
	content, err := os.ReadFile(filepath.Join(dir, template+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	var name struct{ Name string }
	if err := json.Unmarshal(content, &name); err != nil {
		tb.Fatal(err)
	}
	for i := range count {
		id := ledger.NewID()
		other := strings.NewReplacer(template, id, fmt.Sprintf("%q", name.Name), fmt.Sprintf("%q", fmt.Sprintf("%s-%d", name.Name, i))).Replace(string(content))
		if err := os.WriteFile(filepath.Join(dir, id+".json"), []byte(other), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkLsOffline is a whole process; the budget is 150 ms. Its processor time tells
// more than its duration where others are at work.
func BenchmarkLsOffline(b *testing.B) {
	p := newFaultyPlace(b, buildFaultyPlaces(b), "")
	p.fillLedger(b, p.create("box"), manyRecords)
	var processor time.Duration
	for b.Loop() {
		r := p.start("ls", "--offline", "-q")
		if code, lines := r.wait(), strings.Count(r.stdout.String(), "\n"); code != 0 || lines != manyRecords+1 {
			b.Fatalf("exit %d, %d sandboxes are listed", code, lines)
		}
		processor += r.command.ProcessState.UserTime() + r.command.ProcessState.SystemTime()
	}
	b.ReportMetric(float64(processor.Milliseconds())/float64(b.N), "cpu-ms/op")
}

// TestManyProcesses lets many processes work on a ledger of many records at once.
func TestManyProcesses(t *testing.T) {
	p := newFaultyPlace(t, buildFaultyPlaces(t), "")
	shared := p.create("shared", "--label", "job=0")
	p.fillLedger(t, shared, manyRecords)
	for _, name := range []string{"first", "second", "third"} {
		p.create(name, "--label", "job=1")
	}
	processes := crashes(t, 40) / 4
	var all []*running
	for i := range processes {
		all = append(all,
			p.start("create", "--network", "open", "--name", fmt.Sprintf("new%d", i), "--label", "job=2"),
			p.start("renew", "shared", "--ttl", fmt.Sprintf("%dh", i+2)),
			p.start("rm", "-f", []string{"first", "second", "third"}[i%3]),
			p.start("ls", "--offline", "--label", "job=0", "--json"),
		)
	}
	for _, r := range all {
		if code := r.wait(); code != 0 || r.stderr.String() != "" && r.command.Args[1] != "rm" {
			t.Errorf("%q: exit %d: %s", r.command.Args[1:], code, r.stderr)
		}
		if r.command.Args[1] != "ls" {
			continue
		}
		var listed struct{ Sandboxes []struct{ ID string } }
		if err := json.Unmarshal([]byte(r.stdout.String()), &listed); err != nil || len(listed.Sandboxes) != manyRecords+1 {
			t.Errorf("%d sandboxes are listed, %v", len(listed.Sandboxes), err)
		}
	}
	for label, want := range map[string]int{"job=1": 0, "job=2": processes} {
		if lines := strings.Count(p.must("ls", "--offline", "-q", "--label", label), "\n"); lines != want {
			t.Errorf("%d sandboxes have the label %s, want %d", lines, label, want)
		}
	}
	p.must("rm", "-f", "--all", "--label", "job=2")
	if left := p.sandboxes(); len(left) != 1 || left[0] != shared {
		t.Errorf("the backend has %q", left)
	}
	// The others never were at the backend; one by one they would take minutes to forget.
	if err := os.RemoveAll(filepath.Join(p.state, "records")); err != nil {
		t.Fatal(err)
	}
}
