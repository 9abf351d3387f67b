package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLifeOfARecord(t *testing.T) {
	l := open(t, t.TempDir())
	ctx := t.Context()
	r := begin(t, l, "web")
	handle := []byte("a\x00\xff")
	r, err := l.SetCreated(ctx, r.ID, handle)
	if err != nil || r.State != StateCreated || string(r.Handle) != string(handle) {
		t.Fatal(r, err)
	}
	expires := time.Now().Add(time.Minute)
	r, err = l.SetReady(ctx, r.ID, Ready{Handle: []byte("final"), ExpiresAt: expires, Reported: json.RawMessage(`{"workdir":"/w"}`)})
	if err != nil || r.State != StateReady || string(r.Handle) != "final" || !r.ExpiresAt.Equal(expires) {
		t.Fatal(r, err)
	}
	if text := read(t, l.recordPath(r.ID)); !strings.Contains(text, `"handle":"final"`) {
		t.Errorf("a handle that is text must be readable: %s", text)
	}
	if r.Expired(expires.Add(-time.Second)) || !r.Expired(expires) {
		t.Error("the lease must end at its end")
	}
	r, err = l.SetExpiry(ctx, r.ID, time.Time{})
	if err != nil || r.Expired(expires.Add(time.Hour)) {
		t.Fatal(r, err)
	}
	r, err = l.SetGone(ctx, r.ID, "removed")
	if err != nil || r.State != StateGone || r.GoneAt.IsZero() || r.GoneReason != "removed" {
		t.Fatal(r, err)
	}
	if got, err := l.Get(r.ID); err != nil || got.State != StateGone || string(got.Handle) != "final" {
		t.Fatal(got, err)
	}
}

func TestChangesThatDoNotFit(t *testing.T) {
	changes := map[string]func(l *Ledger, id string) error{
		"created": func(l *Ledger, id string) error { _, err := l.SetCreated(t.Context(), id, []byte("h")); return err },
		"ready": func(l *Ledger, id string) error {
			_, err := l.SetReady(t.Context(), id, Ready{Handle: []byte("h")})
			return err
		},
		"expiry": func(l *Ledger, id string) error {
			_, err := l.SetExpiry(t.Context(), id, time.Now())
			return err
		},
		"gone": func(l *Ledger, id string) error { _, err := l.SetGone(t.Context(), id, "again"); return err },
		"drop": func(l *Ledger, id string) error { return l.Drop(t.Context(), id) },
	}
	fits := map[State]string{
		StateIntent:  "created ready gone drop",
		StateCreated: "created ready expiry gone",
		StateReady:   "expiry gone",
		StateGone:    "gone",
	}
	for state, fitting := range fits {
		for change, apply := range changes {
			t.Run(string(state)+"/"+change, func(t *testing.T) {
				l := open(t, t.TempDir())
				r := begin(t, l, "web")
				for _, step := range []string{"created", "ready", "gone"} {
					if r.State == state {
						break
					}
					if err := changes[step](l, r.ID); err != nil {
						t.Fatal(err)
					}
					r, _ = l.Get(r.ID)
				}
				before, _ := l.Get(r.ID)
				err := apply(l, r.ID)
				if strings.Contains(fitting, change) {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				refused, ok := errors.AsType[*StateError](err)
				if !ok || refused.Record.ID != r.ID {
					t.Fatalf("want a *StateError, got %v", err)
				}
				if after, err := l.Get(r.ID); err != nil || after.State != before.State || !after.UpdatedAt.Equal(before.UpdatedAt) {
					t.Errorf("the refused change was written: %+v, %v", after, err)
				}
			})
		}
	}
}

func TestAHandleIsRequired(t *testing.T) {
	l := open(t, t.TempDir())
	r := begin(t, l, "web")
	if _, err := l.SetCreated(t.Context(), r.ID, nil); err == nil {
		t.Error("an empty handle was recorded")
	}
	if _, err := l.SetReady(t.Context(), r.ID, Ready{}); err == nil {
		t.Error("a sandbox without a handle became ready")
	}
}

func TestUnknownMembersSurvive(t *testing.T) {
	l := open(t, t.TempDir())
	r := begin(t, l, "web")
	text := read(t, l.recordPath(r.ID))
	write(t, l.recordPath(r.ID), strings.Replace(text, "{", `{"future":{"a":[1,2]},"also \"quoted\"":"<x>",`, 1))
	if _, err := l.SetReady(t.Context(), r.ID, Ready{Handle: []byte("h")}); err != nil {
		t.Fatal(err)
	}
	gone(t, l, r.ID)
	text = read(t, l.gonePath(r.ID))
	for _, want := range []string{`"future":{"a":[1,2]}`, `"also \"quoted\"":"<x>"`, `"state":"gone"`} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want %s once in %s", want, text)
		}
	}
}

func TestSecondGCWaitsAndSeesTheTombstone(t *testing.T) {
	l := open(t, t.TempDir())
	r := ready(t, l, "web")
	inside, proceed, destroyed := make(chan struct{}), make(chan struct{}), 0
	sweep := func(wait bool) error {
		return l.WithLock(t.Context(), r.ID, func(k *Locked) error {
			if wait {
				close(inside)
				<-proceed
			}
			if k.Record().State != StateGone {
				destroyed++
			}
			return k.SetGone("expired")
		})
	}
	errs := make(chan error, 2)
	go func() { errs <- sweep(true) }()
	<-inside
	go func() { errs <- sweep(false) }()
	close(proceed)
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	if destroyed != 1 {
		t.Errorf("destroyed %d times", destroyed)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	l := open(t, t.TempDir())
	r := ready(t, l, "web")
	err := l.WithLock(t.Context(), r.ID, func(*Locked) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		_, err := l.SetGone(ctx, r.ID, "removed")
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), r.ID) {
		t.Errorf("got %v", err)
	}
}

func TestNoUpdateIsLost(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	r := ready(t, l, "shared")
	begun := time.Now()
	if _, err := l.SetExpiry(t.Context(), r.ID, begun); err != nil {
		t.Fatal(err)
	}
	children := make([]*child, 4)
	for i := range children {
		children[i] = start(t, "extend", dir)
	}
	for _, c := range children {
		c.finish(t)
	}
	if r, err := l.Get(r.ID); err != nil || !r.ExpiresAt.Equal(begun.Round(0).Add(80*time.Second)) {
		t.Errorf("80 extensions moved the lease by %v, %v", r.ExpiresAt.Sub(begun), err)
	}
}

// Every unlock removes the lock file, so waiters keep locking files that are no longer the one in the directory.
func TestOneHolderAtATime(t *testing.T) {
	l := open(t, t.TempDir())
	var inside, overlaps atomic.Int32
	var workers sync.WaitGroup
	take := map[string]func() (release func(), ok bool, err error){
		"try": func() (func(), bool, error) { return l.tryLock("key") },
		"wait": func() (func(), bool, error) {
			release, err := l.lock(t.Context(), "key")
			return release, err == nil, err
		},
	}
	for range 4 {
		for _, lock := range take {
			workers.Go(func() {
				for range 100 {
					release, ok, err := lock()
					if err != nil {
						t.Error(err)
						return
					}
					if !ok {
						continue
					}
					if inside.Add(1) > 1 {
						overlaps.Add(1)
					}
					runtime.Gosched()
					inside.Add(-1)
					release()
				}
			})
		}
	}
	workers.Wait()
	if n := overlaps.Load(); n > 0 {
		t.Errorf("%d times two held the lock", n)
	}
	if left := files(t, l.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
