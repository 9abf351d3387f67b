//go:build !windows

package ledger

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// order says how far a state is, to compare what was promised with what is there.
var order = map[State]int{StateIntent: 1, StateCreated: 2, StateReady: 3, StateGone: 4}

// Writers are killed at random moments, over and over on the same directory. Whatever they had confirmed before must be
// there, nothing may be torn, and no name may belong to two sandboxes.
func TestKillWritersAtRandomMoments(t *testing.T) {
	const rounds, writers = 20, 3
	dir := t.TempDir()
	l := open(t, dir)
	confirmed := map[string]State{}
	dropping := map[string]bool{}
	for round := range rounds {
		children := make([]*child, writers)
		for i := range children {
			children[i] = start(t, "churn", dir)
		}
		lines := make(chan string)
		for _, c := range children {
			go func() {
				for c.stdout.Scan() {
					lines <- c.stdout.Text()
				}
				lines <- ""
			}()
		}
		// The first line shows that the writers are at work; the limit before it ends a round in which they hang.
		death := time.After(time.Minute)
		for alive, first := writers, true; alive > 0; {
			var line string
			select {
			case line = <-lines:
			case <-death:
				for _, c := range children {
					_ = c.Process.Kill()
				}
				death = nil
				continue
			}
			if first {
				first = false
				death = time.After(time.Duration(rand.IntN(60_000)) * time.Microsecond)
			}
			if line == "" {
				alive--
				continue
			}
			fields := strings.Fields(line)
			if fields[1] == "dropping" {
				dropping[fields[0]] = true
			} else if state := State(fields[1]); order[state] > order[confirmed[fields[0]]] {
				confirmed[fields[0]] = state
			}
		}
		for _, c := range children {
			_ = c.Wait()
			if status := c.ProcessState.String(); status != "signal: killed" {
				t.Fatalf("a writer ended by itself: %s", status)
			}
		}
		verify(t, l, confirmed, dropping)
		// Half of the rounds start on the remains of the one before.
		if round%2 == 0 {
			if problems := prune(t, l, time.Now()); len(problems) > 0 {
				t.Fatalf("Prune found %v", problems)
			}
			if remains := glob(t, dir, "*/.*"); len(remains) > 0 || len(glob(t, dir, "locks/*")) > 0 {
				t.Fatalf("after Prune there are %v and %v", remains, glob(t, dir, "locks/*"))
			}
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	if len(confirmed) < rounds {
		t.Errorf("only %d sandboxes were begun in %d rounds", len(confirmed), rounds)
	}
	records, _, err := l.List(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		gone(t, l, r.ID)
	}
	prune(t, l, time.Now().Add(2*TombstoneTTL))
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("in the end there are %v", left)
	}
}

func verify(t *testing.T, l *Ledger, confirmed map[string]State, dropping map[string]bool) {
	t.Helper()
	records, problems, err := l.List(t.Context(), Filter{States: []State{StateIntent, StateCreated, StateReady, StateGone}})
	if err != nil || len(problems) > 0 {
		t.Fatalf("List found %v, %v", problems, err)
	}
	present := map[string]Record{}
	names := map[string]string{}
	for _, r := range records {
		present[r.ID] = r
		if r.State == StateGone {
			continue
		}
		if other, taken := names[r.Name]; taken {
			t.Errorf("%s and %s are both called %s", other, r.ID, r.Name)
		}
		names[r.Name] = r.ID
		if _, found, err := l.byName(t.Context(), r.Name); !found || err != nil {
			t.Errorf("the index does not lead to %s (%s): %v", r.Name, r.ID, err)
		}
		if !r.Abandoned() && r.State != StateReady {
			t.Errorf("%s is not abandoned although its process was killed: %+v", r.ID, r.Process)
		}
	}
	for id, state := range confirmed {
		r, ok := present[id]
		if !ok && !dropping[id] {
			t.Errorf("%s was confirmed as %s and is missing", id, state)
		}
		if ok && order[r.State] < order[state] {
			t.Errorf("%s was confirmed as %s and is %s", id, state, r.State)
		}
	}
}
