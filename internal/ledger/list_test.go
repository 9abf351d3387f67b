package ledger

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func names(records []Record) []string {
	var names []string
	for _, r := range records {
		names = append(names, r.Name)
	}
	return names
}

func TestListFilters(t *testing.T) {
	l := open(t, t.TempDir())
	for _, in := range []Intent{
		{Name: "a", Driver: "local", Labels: map[string]string{"run": "1", "team": "x"}},
		{Name: "b", Driver: "modal", Labels: map[string]string{"run": "1"}},
		{Name: "c", Driver: "local", Labels: map[string]string{"run": ""}},
	} {
		if _, err := l.Begin(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	ready(t, l, "d")
	gone(t, l, ready(t, l, "e").ID)
	tests := map[string]struct {
		filter Filter
		want   string
	}{
		"default":       {Filter{}, "a b c d"},
		"driver":        {Filter{Driver: "local"}, "a c"},
		"label":         {Filter{Labels: map[string]string{"run": "1"}}, "a b"},
		"both labels":   {Filter{Labels: map[string]string{"run": "1", "team": "x"}}, "a"},
		"empty label":   {Filter{Labels: map[string]string{"run": ""}}, "c"},
		"ready":         {Filter{States: []State{StateReady}}, "d"},
		"gone and more": {Filter{States: []State{StateGone, StateReady}}, "d e"},
		"none":          {Filter{Driver: "nosuch"}, ""},
	}
	for name, test := range tests {
		records, problems, err := l.List(t.Context(), test.filter)
		if err != nil || len(problems) > 0 || strings.Join(names(records), " ") != test.want {
			t.Errorf("%s: got %v, %v, %v; want %s", name, names(records), problems, err, test.want)
		}
	}
}

// A file that cannot be understood is reported with its path and cause, is no reason to fail, and hides nothing else.
func TestDamagedRecords(t *testing.T) {
	damages := map[string]struct {
		damage func(text string) string
		cause  string
	}{
		"emptied":         {func(string) string { return "" }, "empty"},
		"zeroed":          {func(text string) string { return strings.Repeat("\x00", len(text)) }, "not a JSON record"},
		"truncated":       {func(text string) string { return text[:len(text)/2] }, "not a JSON record"},
		"an array":        {func(string) string { return "[]" }, "not a JSON record"},
		"null":            {func(string) string { return "null" }, "no schema version"},
		"two records":     {func(text string) string { return text + text }, "not a JSON record"},
		"another id":      {func(text string) string { return strings.Replace(text, `"id":"sb-`, `"id":"sb-x`, 1) }, "its id is"},
		"a future schema": {func(text string) string { return strings.Replace(text, `"schema":1`, `"schema":2`, 1) }, "upgrade sandboxctl"},
		"a strange state": {func(text string) string { return strings.Replace(text, `"ready"`, `"rotten"`, 1) }, "rotten"},
		"no handle":       {func(text string) string { return strings.Replace(text, `"handle"`, `"handlf"`, 1) }, "no handle"},
		"a bad time":      {func(text string) string { return strings.Replace(text, `"created_at":"2`, `"created_at":"x`, 1) }, "not a JSON record"},
		"a bad name":      {func(text string) string { return strings.Replace(text, `"web"`, `"a/../b"`, 1) }, "not valid"},
		"no driver":       {func(text string) string { return strings.Replace(text, `"fake"`, `""`, 1) }, "no driver"},
		"huge":            {func(text string) string { return text + strings.Repeat(" ", maxRecord) }, "larger than"},
	}
	for name, test := range damages {
		t.Run(name, func(t *testing.T) {
			l := open(t, t.TempDir())
			ready(t, l, "before")
			r := ready(t, l, "web")
			path := l.recordPath(r.ID)
			write(t, path, test.damage(read(t, path)))

			records, problems, err := l.List(t.Context(), Filter{})
			if err != nil || !slices.Equal(names(records), []string{"before"}) {
				t.Fatalf("got %v, %v", names(records), err)
			}
			if len(problems) != 1 || problems[0].Path != path || problems[0].ID != r.ID || !strings.Contains(problems[0].Error(), test.cause) {
				t.Fatalf("want one problem about %q, got %v", test.cause, problems)
			}
			for what, try := range map[string]func() error{
				"find by name": func() error { _, err := l.Find(t.Context(), "web"); return err },
				"find by id":   func() error { _, err := l.Find(t.Context(), r.ID); return err },
				"begin":        func() error { _, err := l.Begin(t.Context(), Intent{Name: "web", Driver: "fake"}); return err },
				"change":       func() error { _, err := l.SetGone(t.Context(), r.ID, "removed"); return err },
			} {
				if problem, ok := errors.AsType[Problem](try()); !ok || problem.Path != path {
					t.Errorf("%s: want a Problem with the file", what)
				}
			}
			// The advice in the message works.
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			begin(t, l, "web")
		})
	}
}

func TestStraysAreReported(t *testing.T) {
	l := open(t, t.TempDir())
	r := ready(t, l, "web")
	write(t, l.recordPath(r.ID)+"~", "x")
	mkdir(t, l.recordPath(NewID()))
	records, problems, err := l.List(t.Context(), Filter{})
	if err != nil || len(records) != 1 || len(problems) != 2 {
		t.Errorf("got %v, %v, %v", names(records), problems, err)
	}
}
