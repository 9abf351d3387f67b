package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
	"unicode/utf8"
)

// Intent is what is about to be asked of a backend.
type Intent struct {
	// Name must satisfy ValidateName; empty means that the sandbox is known by its id alone.
	Name string
	// Driver is required.
	Driver    string
	RequestID string
	// Spec is the canonical JSON of the request, without secrets. It is kept in compact form.
	Spec   json.RawMessage
	Labels map[string]string
	// ExpiresAt is the end of the lease; zero for none.
	ExpiresAt time.Time
}

// Begin writes the intent durably and returns its record in StateIntent, with a fresh ID. Call it before the backend is
// asked for anything, then SetCreated, SetReady, or Drop.
//
// Of any number of processes that begin the same name at once exactly one succeeds; the others get a *NameTakenError that
// carries the winner's record. If the file of the sandbox that has the name is damaged, the error is a Problem; a directory
// that cannot be written gives a *StateDirError.
func (l *Ledger) Begin(ctx context.Context, in Intent) (Record, error) {
	if l.unwritable != nil {
		return Record{}, l.unwritable
	}
	r, err := newRecord(in)
	if err != nil {
		return Record{}, err
	}
	data, err := encodeRecord(r, nil)
	if err != nil {
		return Record{}, err
	}
	if err := checkGrown(r, data); err != nil {
		return Record{}, err
	}
	if r.Name == r.ID {
		return r, l.create(ctx, r, data)
	}
	release, err := l.lock(ctx, nameKey(r.Name))
	if err != nil {
		return Record{}, err
	}
	defer release()
	switch existing, found, err := l.byName(ctx, r.Name); {
	case err != nil:
		return Record{}, err
	case found && existing.State != StateGone:
		return Record{}, &NameTakenError{Existing: existing}
	}
	// The index goes first: a crash in between leaves an entry that points nowhere, which means that the name is free. The
	// other way round would leave a sandbox whose name could be given away again.
	if err := l.setIndex(r.Name, r.ID); err != nil {
		return Record{}, l.dirError("write to", err)
	}
	if err := l.create(ctx, r, data); err != nil {
		// Best effort: an entry that stays behind is harmless and swept by Prune.
		_ = l.dropIndex(r.Name, r.ID)
		return Record{}, err
	}
	return r, nil
}

func newRecord(in Intent) (Record, error) {
	id := NewID()
	if in.Name == "" {
		in.Name = id
	} else if err := ValidateName(in.Name); err != nil {
		return Record{}, err
	}
	if in.Driver == "" {
		return Record{}, errors.New("cannot begin a sandbox without a driver")
	}
	for k, v := range in.Labels {
		// JSON would silently replace the bad bytes.
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return Record{}, fmt.Errorf("the label %q=%q is not valid UTF-8", k, v)
		}
	}
	var spec bytes.Buffer
	if len(in.Spec) > 0 {
		if err := json.Compact(&spec, in.Spec); err != nil {
			return Record{}, fmt.Errorf("the spec of %s is not JSON: %w", in.Name, err)
		}
	}
	now := time.Now().UTC().Round(0)
	r := Record{
		Schema: schemaVersion, ID: id, Name: in.Name, Driver: in.Driver, RequestID: in.RequestID, State: StateIntent,
		Spec: spec.Bytes(), Labels: in.Labels, CreatedAt: now, UpdatedAt: now, ExpiresAt: in.ExpiresAt.UTC().Round(0),
		Process: currentProcess(),
	}
	return r.clone(), nil
}

// create writes a new record. Nobody else knows its id yet; the lock tells Prune that the temporary file is in use.
func (l *Ledger) create(ctx context.Context, r Record, data []byte) error {
	release, err := l.lock(ctx, r.ID)
	if err != nil {
		return err
	}
	defer release()
	if err := replaceFile(l.recordPath(r.ID), data); err != nil {
		// The rename may have happened and only its durability be in doubt. Nothing was asked of a backend yet, so the
		// record must not stay.
		if removeErr := os.Remove(l.recordPath(r.ID)); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
		return l.dirError("write to", err)
	}
	return nil
}
