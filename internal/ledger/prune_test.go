package ledger

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func prune(t *testing.T, l *Ledger, now time.Time) []Problem {
	t.Helper()
	problems, err := l.Prune(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

func TestTombstonesLastADay(t *testing.T) {
	l := open(t, t.TempDir())
	ready(t, l, "stays")
	r := gone(t, l, ready(t, l, "goes").ID)
	prune(t, l, r.GoneAt.Add(TombstoneTTL-time.Second))
	if got, err := l.Get(r.ID); err != nil || got.State != StateGone {
		t.Fatalf("the tombstone went early: %v", err)
	}
	prune(t, l, r.GoneAt.Add(TombstoneTTL))
	if _, err := l.Get(r.ID); !isNotFound(err) {
		t.Errorf("want the tombstone to be removed, got %v", err)
	}
	left := files(t, l.dir)
	if len(left) != 2 || !slices.Contains(left, "names/stays.id") {
		t.Errorf("want one record and its name, got %v", left)
	}
}

// A clock that was far ahead must not keep tombstones for as long.
func TestTombstonesFromTheFutureGo(t *testing.T) {
	l := open(t, t.TempDir())
	r := gone(t, l, ready(t, l, "goes").ID)
	prune(t, l, r.GoneAt.Add(-time.Hour))
	if _, err := l.Get(r.ID); err != nil {
		t.Fatalf("the tombstone went early: %v", err)
	}
	prune(t, l, r.GoneAt.Add(-365*24*time.Hour))
	if _, err := l.Get(r.ID); !isNotFound(err) {
		t.Errorf("want the tombstone to be removed, got %v", err)
	}
}

// What a kill -9 leaves at each step, and what it means.
func TestRemainsOfACrash(t *testing.T) {
	tests := map[string]struct {
		remains  func(t *testing.T, l *Ledger, r Record)
		nameFree bool
		after    int // files that may stay after Prune
	}{
		"in Begin after the index": {func(t *testing.T, l *Ledger, r Record) {
			removeFile(t, l.recordPath(r.ID))
		}, true, 0},
		"while the first record is written": {func(t *testing.T, l *Ledger, r Record) {
			if err := os.Rename(l.recordPath(r.ID), l.dir+"/records/."+r.ID+".json123"); err != nil {
				t.Fatal(err)
			}
			write(t, l.dir+"/locks/"+r.ID, "")
			write(t, l.dir+"/locks/name-web", "")
		}, true, 0},
		"while the index is written": {func(t *testing.T, l *Ledger, r Record) {
			removeFile(t, l.recordPath(r.ID))
			if err := os.Rename(l.indexPath("web"), l.dir+"/names/.web.id0042"); err != nil {
				t.Fatal(err)
			}
		}, true, 0},
		"while a change is written": {func(t *testing.T, l *Ledger, r Record) {
			write(t, l.dir+"/records/."+r.ID+".json99", "{\"sche")
			write(t, l.dir+"/locks/"+r.ID, "")
		}, false, 2},
		"in SetGone before the move": {func(t *testing.T, l *Ledger, r Record) {
			gone(t, l, r.ID)
			if err := os.Rename(l.gonePath(r.ID), l.recordPath(r.ID)); err != nil {
				t.Fatal(err)
			}
		}, true, 2},
		"while the owner is written": {func(t *testing.T, l *Ledger, r Record) {
			write(t, l.dir+"/.owner7", "ab")
			write(t, l.dir+"/locks/owner", "")
		}, false, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := open(t, t.TempDir())
			r := begin(t, l, "web")
			test.remains(t, l, r)
			records, problems, err := l.List(t.Context(), Filter{})
			if err != nil || len(problems) > 0 || (len(records) == 0) != test.nameFree {
				t.Errorf("ls shows %v, %v, %v", names(records), problems, err)
			}
			if _, err := l.Find(t.Context(), "web"); isNotFound(err) != test.nameFree {
				t.Errorf("find says %v", err)
			}
			if problems := prune(t, l, time.Now()); len(problems) > 0 {
				t.Errorf("Prune complains: %v", problems)
			}
			if left := files(t, l.dir); len(left) != test.after {
				t.Errorf("after Prune there are %v", left)
			}
			if test.nameFree {
				begin(t, l, "web")
			}
		})
	}
}

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestPruneLeavesWhatIsInUse(t *testing.T) {
	l := open(t, t.TempDir())
	r := ready(t, l, "web")
	temp := l.dir + "/records/." + r.ID + ".json1"
	err := l.WithLock(t.Context(), r.ID, func(*Locked) error {
		write(t, temp, "half")
		prune(t, l, time.Now())
		if got := read(t, temp); got != "half" {
			t.Errorf("the file in work holds %q", got)
		}
		if locks := glob(t, l.dir, "locks/*"); len(locks) != 1 {
			t.Errorf("locks are %v", locks)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	strange := l.dir + "/records/.somebody-else"
	write(t, strange, "x")
	prune(t, l, time.Now())
	if left := glob(t, l.dir, "records/.*"); !slices.Equal(left, []string{strange}) {
		t.Errorf("left: %v", left)
	}
}

func TestPruneReportsTwoSandboxesOfOneName(t *testing.T) {
	l := open(t, t.TempDir())
	first := ready(t, l, "web")
	second := ready(t, l, "copy")
	path := l.recordPath(second.ID)
	write(t, path, strings.Replace(read(t, path), `"copy"`, `"web"`, 1))
	problems := prune(t, l, time.Now())
	if len(problems) != 1 || problems[0].ID != second.ID || !strings.Contains(problems[0].Error(), first.ID) {
		t.Errorf("got %v", problems)
	}
	if got, err := l.Find(t.Context(), "web"); err != nil || got.ID != first.ID {
		t.Errorf("found %s, %v", got.ID, err)
	}
}

func TestPruneKeepsTheNameOfADamagedRecord(t *testing.T) {
	l := open(t, t.TempDir())
	r := ready(t, l, "web")
	write(t, l.recordPath(r.ID), "")
	if problems := prune(t, l, time.Now()); len(problems) != 1 {
		t.Errorf("got %v", problems)
	}
	if _, err := l.Begin(t.Context(), Intent{Name: "web", Driver: "fake"}); err == nil {
		t.Error("the name was given away although its sandbox may exist")
	}
}

// Prune must never take the index entry of a create that has not yet written its record.
func TestPruneBesideBegin(t *testing.T) {
	l := open(t, t.TempDir())
	done := make(chan struct{})
	var pruning sync.WaitGroup
	for range 2 {
		pruning.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := l.Prune(t.Context(), time.Now()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 50 {
		r := begin(t, l, "web")
		if got, found, err := l.byName(t.Context(), "web"); !found || got.ID != r.ID {
			t.Errorf("the index has %s, %v; want %s", got.ID, err, r.ID)
		}
		if err := l.Drop(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
	}
	close(done)
	pruning.Wait()
}
