package ledger

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFind(t *testing.T) {
	l := open(t, t.TempDir())
	web, unnamed := ready(t, l, "web"), begin(t, l, "")
	if unnamed.Name != unnamed.ID {
		t.Fatalf("a sandbox without a name is called %q", unnamed.Name)
	}
	for query, want := range map[string]Record{
		"web": web, web.ID: web, web.ID[:10]: web, unnamed.ID: unnamed, unnamed.ID[:9]: unnamed,
	} {
		if got, err := l.Find(t.Context(), query); err != nil || got.ID != want.ID {
			t.Errorf("%q found %s, %v; want %s", query, got.ID, err, want.ID)
		}
	}
}

func TestFindNothing(t *testing.T) {
	l := open(t, t.TempDir())
	ready(t, l, "training-1")
	old := ready(t, l, "old")
	gone(t, l, old.ID)
	tests := []struct {
		query, want string
		gone        bool
		near        []string
	}{
		{query: "", want: `no sandbox ""`},
		{query: "../owner", want: "no sandbox"},
		{query: "sb-", want: "no sandbox"},
		{query: NewID(), want: "no sandbox"},
		{query: "nosuch", want: "sandboxctl ls"},
		{query: "trainign-1", want: "did you mean training-1?", near: []string{"training-1"}},
		{query: "odl", want: "sandboxctl ls"}, // a gone sandbox is no help
		{query: "old", want: "is gone since", gone: true},
		{query: old.ID, want: "removed", gone: true},
		{query: old.ID[:10], want: "is gone since", gone: true},
	}
	for _, test := range tests {
		_, err := l.Find(t.Context(), test.query)
		missing, ok := errors.AsType[*NotFoundError](err)
		if !ok {
			t.Errorf("%q: want a *NotFoundError, got %v", test.query, err)
			continue
		}
		if !strings.Contains(told(err), test.want) || (missing.Gone != nil) != test.gone || !slices.Equal(missing.Near, test.near) {
			t.Errorf("%q: got %+v: %v", test.query, missing, err)
		}
	}
}

func TestFindAmbiguous(t *testing.T) {
	l := open(t, t.TempDir())
	a, b := begin(t, l, "first"), begin(t, l, "second")
	rename(t, l, a, "sb-zzzzzzzzzzza")
	rename(t, l, b, "sb-zzzzzzzzzzzb")
	write(t, l.recordPath("sb-zzzzzzzzzzzc"), "{")
	_, err := l.Find(t.Context(), "sb-zz")
	ambiguous, ok := errors.AsType[*AmbiguousError](err)
	if !ok || len(ambiguous.IDs) != 3 || len(ambiguous.Candidates) != 3 {
		t.Fatalf("got %+v", err)
	}
	for _, want := range []string{"sb-zzzzzzzzzzza (first)", "sb-zzzzzzzzzzzb (second)", "sb-zzzzzzzzzzzc", "3 sandboxes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
}

// rename gives a record another id, as no command does.
func rename(t *testing.T, l *Ledger, r Record, id string) {
	t.Helper()
	write(t, l.recordPath(id), strings.Replace(read(t, l.recordPath(r.ID)), r.ID, id, 1))
	write(t, l.indexPath(r.Name), id+"\n")
	if err := os.Remove(l.recordPath(r.ID)); err != nil {
		t.Fatal(err)
	}
}

// Whatever happens to the index, a sandbox is found by its name, and Prune repairs the entry.
func TestIndexHeals(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path, other string){
		"deleted": func(t *testing.T, path, _ string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"emptied":         func(t *testing.T, path, _ string) { write(t, path, "") },
		"no id":           func(t *testing.T, path, _ string) { write(t, path, "../../etc/passwd\n") },
		"another sandbox": func(t *testing.T, path, other string) { write(t, path, other+"\n") },
		"an unknown id":   func(t *testing.T, path, _ string) { write(t, path, NewID()+"\n") },
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, t.TempDir())
			r := ready(t, l, "web")
			damage(t, l.indexPath("web"), begin(t, l, "other").ID)
			if got, err := l.Find(t.Context(), "web"); err != nil || got.ID != r.ID {
				t.Errorf("found %s, %v", got.ID, err)
			}
			if _, err := l.Prune(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			if id := read(t, l.indexPath("web")); id != r.ID+"\n" {
				t.Errorf("the index has %q after Prune, want %s", id, r.ID)
			}
		})
	}
}

func TestManyCandidatesAreCutShort(t *testing.T) {
	l := open(t, t.TempDir())
	for i := range maxCandidates + 2 {
		rename(t, l, begin(t, l, fmt.Sprint("n", i)), fmt.Sprintf("sb-zzzzzzzzzzz%c", 'a'+i))
	}
	_, err := l.Find(t.Context(), "sb-z")
	if err == nil || !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("got %v", err)
	}
}
