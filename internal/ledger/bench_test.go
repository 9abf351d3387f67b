package ledger

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"
)

// fill writes n ready records and their names without syncing each, which would take minutes.
func fill(tb testing.TB, l *Ledger, n int) []Record {
	tb.Helper()
	spec := json.RawMessage(`{"image":"python:3.12-slim","cpus":2,"memory":"512m","network":{"mode":"none"},"env":["A","B"]}`)
	records := make([]Record, n)
	for i := range records {
		r, err := newRecord(Intent{
			Name: fmt.Sprintf("task-%05d", i), Driver: []string{"local", "modal"}[i%2], Spec: spec,
			Labels: map[string]string{"run": fmt.Sprint(i % 10), "team": "data"}, ExpiresAt: time.Now().Add(time.Hour),
		})
		if err != nil {
			tb.Fatal(err)
		}
		r.State, r.Handle = StateReady, []byte("container-"+r.ID)
		data, err := encodeRecord(r, nil)
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(l.recordPath(r.ID), data, 0o600); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(l.indexPath(r.Name), []byte(r.ID+"\n"), 0o600); err != nil {
			tb.Fatal(err)
		}
		records[i] = r
	}
	return records
}

func BenchmarkList10000(b *testing.B) {
	l := open(b, b.TempDir())
	fill(b, l, 10_000)
	for b.Loop() {
		records, problems, err := l.List(b.Context(), Filter{})
		if err != nil || len(problems) > 0 || len(records) != 10_000 {
			b.Fatal(len(records), problems, err)
		}
	}
}

func BenchmarkFindAmong10000(b *testing.B) {
	l := open(b, b.TempDir())
	records := fill(b, l, 10_000)
	want := records[len(records)/2]
	for name, query := range map[string]string{"name": want.Name, "id": want.ID, "prefix": want.ID[:len(want.ID)-1]} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if got, err := l.Find(b.Context(), query); err != nil || got.ID != want.ID {
					b.Fatal(got, err)
				}
			}
		})
	}
	b.Run("miss", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.Find(b.Context(), "nosuch"); err == nil {
				b.Fatal("found")
			}
		}
	})
}

func BenchmarkLifecycle(b *testing.B) {
	l := open(b, b.TempDir())
	ctx := b.Context()
	for b.Loop() {
		r, err := l.Begin(ctx, Intent{Name: "bench", Driver: "local"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.SetCreated(ctx, r.ID, []byte("h")); err != nil {
			b.Fatal(err)
		}
		if _, err := l.SetReady(ctx, r.ID, Ready{}); err != nil {
			b.Fatal(err)
		}
		if _, err := l.SetGone(ctx, r.ID, "removed"); err != nil {
			b.Fatal(err)
		}
	}
}
