package ledger

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestBeginIsOnDisk(t *testing.T) {
	l := open(t, t.TempDir())
	expires := time.Now().Add(time.Hour)
	in := Intent{
		Name: "Web.1", Driver: "fake", RequestID: "req", Spec: json.RawMessage(`{ "image": "a<b>&\u003c" }`),
		Labels: map[string]string{"k": "v & w"}, ExpiresAt: expires,
	}
	r, err := l.Begin(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := open(t, l.dir).Get(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("read back\n%+v\nbut Begin returned\n%+v", got, r)
	}
	if got.State != StateIntent || got.Name != "Web.1" || got.Process.Alive() == Dead || !got.ExpiresAt.Equal(expires) {
		t.Errorf("unexpected record %+v", got)
	}
	if want := `{"image":"a<b>&\u003c"}`; string(got.Spec) != want {
		t.Errorf("the spec is %s, want its own bytes %s", got.Spec, want)
	}
	if text := read(t, l.recordPath(r.ID)); strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "}\n") {
		t.Errorf("the file is not one line: %q", text)
	}
}

func TestBeginRefuses(t *testing.T) {
	l := open(t, t.TempDir())
	for name, in := range map[string]Intent{
		"no driver":       {Name: "a"},
		"bad name":        {Name: "../a", Driver: "fake"},
		"name like an id": {Name: NewID(), Driver: "fake"},
		"bad spec":        {Name: "a", Driver: "fake", Spec: json.RawMessage(`{"a":`)},
		"bad label":       {Name: "a", Driver: "fake", Labels: map[string]string{"k": "\xff"}},
	} {
		if _, err := l.Begin(t.Context(), in); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if left := files(t, l.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNameIsUniqueWhileNotGone(t *testing.T) {
	for name, free := range map[string]func(l *Ledger, r Record) error{
		"after drop": func(l *Ledger, r Record) error { return l.Drop(t.Context(), r.ID) },
		"after gone": func(l *Ledger, r Record) error { _, err := l.SetGone(t.Context(), r.ID, "removed"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, t.TempDir())
			first := begin(t, l, "web")
			_, err := l.Begin(t.Context(), Intent{Name: "web", Driver: "fake"})
			if taken, ok := errors.AsType[*NameTakenError](err); !ok || taken.Existing.ID != first.ID {
				t.Fatalf("want the name to be taken by %s, got %v", first.ID, err)
			}
			if err := free(l, first); err != nil {
				t.Fatal(err)
			}
			second := begin(t, l, "web")
			// The loser of the name must not be able to take the index away from the winner.
			if _, err := l.Prune(t.Context(), time.Now().Add(2*TombstoneTTL)); err != nil {
				t.Fatal(err)
			}
			if found, err := l.Find(t.Context(), "web"); err != nil || found.ID != second.ID {
				t.Errorf("found %s, %v; want %s", found.ID, err, second.ID)
			}
		})
	}
}

func TestNamesDifferByCase(t *testing.T) {
	l := open(t, t.TempDir())
	lower, upper := begin(t, l, "web"), begin(t, l, "WEB")
	for name, want := range map[string]Record{"web": lower, "WEB": upper} {
		if got, err := l.Find(t.Context(), name); err != nil || got.ID != want.ID {
			t.Errorf("%s found %s, %v", name, got.ID, err)
		}
	}
	for _, file := range files(t, l.dir) {
		if strings.ToLower(file) != file {
			t.Errorf("%s would collide on a file system that folds case", file)
		}
	}
}

// Ten processes with five goroutines each; facts: 20 parallel creates of one name must give one sandbox.
func TestFiftyBeginsOfOneName(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	children := make([]*child, 10)
	for i := range children {
		children[i] = start(t, "begin", dir)
	}
	for _, c := range children {
		c.line(t)
	}
	for _, c := range children {
		_ = c.stdin.Close()
	}
	ids := map[string]int{}
	won := 0
	for _, c := range children {
		for _, line := range c.finish(t) {
			outcome, id, _ := strings.Cut(line, " ")
			if outcome == "won" {
				won++
			} else if outcome != "taken" {
				t.Error(line)
			}
			ids[id]++
		}
	}
	if won != 1 || len(ids) != 1 {
		t.Errorf("%d processes won, ids %v", won, ids)
	}
	if records, problems, err := l.List(t.Context(), Filter{}); len(records) != 1 || len(problems) > 0 || err != nil {
		t.Errorf("%d records, %v, %v", len(records), problems, err)
	}
	if locks := glob(t, dir, locksDir+"/*"); len(locks) > 0 {
		t.Errorf("lock files stay: %v", locks)
	}
}

func TestFailedBeginLeavesNothing(t *testing.T) {
	l := open(t, t.TempDir())
	if err := os.Remove(filepath.Join(l.dir, recordsDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Begin(t.Context(), Intent{Name: "web", Driver: "fake"}); err == nil {
		t.Fatal("there is no place for the record")
	}
	if left := files(t, l.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
