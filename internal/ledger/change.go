package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// Ready is what is known once a sandbox can be used.
type Ready struct {
	// Handle replaces the one given to SetCreated, unless it is empty.
	Handle []byte
	// ExpiresAt replaces the lease of the intent with the one the backend really gave, unless it is zero.
	ExpiresAt time.Time
	// Reported is what the driver said about the sandbox, as JSON; nil for nothing.
	Reported json.RawMessage
}

// SetCreated records the backend's reference. Call it the moment the reference is known. See Locked.SetCreated.
func (l *Ledger) SetCreated(ctx context.Context, id string, handle []byte) (Record, error) {
	return l.change(ctx, id, func(k *Locked) error { return k.SetCreated(handle) })
}

// SetReady records that the sandbox can be used. See Locked.SetReady.
func (l *Ledger) SetReady(ctx context.Context, id string, ready Ready) (Record, error) {
	return l.change(ctx, id, func(k *Locked) error { return k.SetReady(ready) })
}

// SetExpiry moves the end of the lease. See Locked.SetExpiry.
func (l *Ledger) SetExpiry(ctx context.Context, id string, expiresAt time.Time) (Record, error) {
	return l.change(ctx, id, func(k *Locked) error { return k.SetExpiry(expiresAt) })
}

// SetGone turns the record into a tombstone. See Locked.SetGone.
func (l *Ledger) SetGone(ctx context.Context, id, reason string) (Record, error) {
	return l.change(ctx, id, func(k *Locked) error { return k.SetGone(reason) })
}

// Drop forgets an intent. See Locked.Drop.
func (l *Ledger) Drop(ctx context.Context, id string) error {
	return l.WithLock(ctx, id, (*Locked).Drop)
}

func (l *Ledger) change(ctx context.Context, id string, fn func(*Locked) error) (Record, error) {
	var after Record
	err := l.WithLock(ctx, id, func(k *Locked) error {
		err := fn(k)
		after = k.Record()
		return err
	})
	return after, err
}

// WithLock runs fn while no other process can change the record with this exact id, for as long as fn takes. It is how gc
// decides and destroys: a second gc waits and then sees the tombstone. fn must not lock another record, and must use the
// methods of Locked and not those of Ledger on this one.
//
// The record is read after the lock was taken; a gone one is passed to fn too. Errors before fn runs: *NotFoundError,
// Problem, *StateDirError, or one that wraps ctx.Err().
func (l *Ledger) WithLock(ctx context.Context, id string, fn func(*Locked) error) error {
	if !IsID(id) {
		return &NotFoundError{Query: id}
	}
	release, err := l.lock(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	r, raw, err := l.load(id)
	if err != nil {
		return err
	}
	return fn(&Locked{ledger: l, record: r, raw: raw})
}

// Locked is a record that nobody else can change. Its methods are refused with a *StateError when the record is in a state
// they do not fit, so that a process which was slow cannot bring back what another has removed.
type Locked struct {
	ledger *Ledger
	record Record
	raw    []byte // the file's content, for the members this version does not know
}

// Record returns the record as it is on disk.
func (k *Locked) Record() Record { return k.record.clone() }

// SetCreated stores the backend's reference. It fits intent, and created when a better reference becomes known.
func (k *Locked) SetCreated(handle []byte) error {
	if len(handle) == 0 {
		return fmt.Errorf("the driver %s gave an empty reference for the sandbox %s", k.record.Driver, k.record.ID)
	}
	return k.update("record the reference of", []State{StateIntent, StateCreated}, func(r *Record) {
		r.State = StateCreated
		r.Handle = handle
	})
}

// SetReady fits intent and created. A handle must be known from SetCreated or be given here.
func (k *Locked) SetReady(ready Ready) error {
	if len(ready.Handle) == 0 && len(k.record.Handle) == 0 {
		return fmt.Errorf("the driver %s gave no reference for the sandbox %s", k.record.Driver, k.record.ID)
	}
	return k.update("mark ready", []State{StateIntent, StateCreated}, func(r *Record) {
		r.State = StateReady
		r.Reported = ready.Reported
		if len(ready.Handle) > 0 {
			r.Handle = ready.Handle
		}
		if !ready.ExpiresAt.IsZero() {
			r.ExpiresAt = ready.ExpiresAt.UTC().Round(0)
		}
	})
}

// SetExpiry moves the end of the lease; zero means no end. It fits created and ready.
func (k *Locked) SetExpiry(expiresAt time.Time) error {
	return k.update("renew", []State{StateCreated, StateReady}, func(r *Record) { r.ExpiresAt = expiresAt.UTC().Round(0) })
}

// SetGone turns the record into a tombstone, which frees the name. reason is one short phrase for people, such as
// "removed" or "expired". On a record that is gone it does nothing. On a full disk the record is removed without leaving a
// tombstone, so that cleaning up works then too.
func (k *Locked) SetGone(reason string) error {
	if k.record.State == StateGone {
		return nil
	}
	bury := func(r *Record) {
		r.State = StateGone
		r.GoneAt = time.Now().UTC().Round(0)
		r.GoneReason = reason
	}
	err := k.update("remove", []State{StateIntent, StateCreated, StateReady}, bury)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		bury(&k.record)
		return k.forget()
	}
	if err != nil {
		return err
	}
	return k.ledger.bury(k.record.ID)
}

// Drop forgets an intent for which the backend was never asked, and frees the name at once. It fits only intent.
func (k *Locked) Drop() error {
	if k.record.State != StateIntent {
		return &StateError{Record: k.Record(), Op: "drop"}
	}
	if err := k.forget(); err != nil {
		return err
	}
	k.record.State = StateGone
	return nil
}

func (k *Locked) update(op string, from []State, edit func(*Record)) error {
	if !slices.Contains(from, k.record.State) {
		return &StateError{Record: k.Record(), Op: op}
	}
	next := k.record
	edit(&next)
	next = next.clone()
	next.UpdatedAt = time.Now().UTC().Round(0)
	data, err := encodeRecord(next, k.raw)
	if err != nil {
		return err
	}
	if err := checkGrown(next, data); err != nil {
		return err
	}
	if err := replaceFile(k.ledger.recordPath(next.ID), data); err != nil {
		return k.ledger.dirError("write to", err)
	}
	k.record, k.raw = next, data
	return nil
}

// forget removes the record without a trace.
func (k *Locked) forget() error {
	l, r := k.ledger, k.record
	if err := os.Remove(l.recordPath(r.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.dirError("write to", err)
	}
	if r.Name == r.ID {
		return nil
	}
	// The name is free already, since an index entry that leads to no record counts for nothing. If it cannot be removed
	// now, Prune does it.
	_ = l.whenFree(nameKey(r.Name), func() error { return l.dropIndex(r.Name, r.ID) })
	return nil
}

// bury moves a tombstone out of the way of List. The state in the file is what counts, so a crash before the move loses
// nothing; Prune repeats it.
func (l *Ledger) bury(id string) error {
	if err := os.Rename(l.recordPath(id), l.gonePath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.dirError("write to", err)
	}
	return nil
}
