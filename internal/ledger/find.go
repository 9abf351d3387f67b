package ledger

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// maxCandidates is how many records an AmbiguousError describes.
const maxCandidates = 10

// Get returns the record with this exact id, gone or not. Errors: *NotFoundError, Problem.
func (l *Ledger) Get(id string) (Record, error) {
	if !IsID(id) {
		return Record{}, &NotFoundError{Query: id}
	}
	r, _, err := l.load(id)
	return r, err
}

// Find returns the sandbox, not gone, that query names: by exact name, exact id, or a prefix of the id ("sb-" included)
// that no other sandbox shares. Errors: *NotFoundError, *AmbiguousError, Problem.
//
// A name or an id costs two small reads however many records there are; only a query that matches nothing reads them all,
// in case the index lost a name.
func (l *Ledger) Find(ctx context.Context, query string) (Record, error) {
	if IsID(query) {
		return l.findID(query)
	}
	if ValidateName(query) != nil {
		return Record{}, &NotFoundError{Query: query}
	}
	named, found, err := l.byName(ctx, query)
	if err != nil || found && named.State != StateGone {
		return named, err
	}
	r, err := l.byPrefix(query)
	if miss, ok := errors.AsType[*NotFoundError](err); !ok || miss.Gone != nil {
		return r, err
	}
	if found {
		return Record{}, &NotFoundError{Query: query, Gone: &named}
	}
	if r, found, err := l.scanForName(ctx, query); err != nil || found {
		return r, err
	}
	return Record{}, &NotFoundError{Query: query, Near: l.near(query)}
}

func (l *Ledger) findID(id string) (Record, error) {
	r, err := l.Get(id)
	if err != nil {
		return Record{}, err
	}
	if r.State == StateGone {
		return Record{}, &NotFoundError{Query: id, Gone: &r}
	}
	return r, nil
}

// byName looks name up through the index and returns the last record that had it, gone or not. It reads all records only
// if the index entry is damaged.
func (l *Ledger) byName(ctx context.Context, name string) (r Record, found bool, err error) {
	id, err := l.indexed(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if errors.Is(err, errBadIndex) {
		return l.scanForName(ctx, name)
	}
	if err != nil {
		return Record{}, false, l.dirError("read", err)
	}
	r, _, err = l.load(id)
	if _, missing := errors.AsType[*NotFoundError](err); missing {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	if r.Name != name {
		return l.scanForName(ctx, name)
	}
	return r, true, nil
}

func (l *Ledger) scanForName(ctx context.Context, name string) (r Record, found bool, err error) {
	records, _, err := l.List(ctx, Filter{})
	if err != nil {
		return Record{}, false, err
	}
	i := slices.IndexFunc(records, func(r Record) bool { return r.Name == name })
	if i < 0 {
		return Record{}, false, nil
	}
	return records[i], true, nil
}

// byPrefix matches against file names; only the records that match are read.
func (l *Ledger) byPrefix(prefix string) (Record, error) {
	if random, ok := strings.CutPrefix(prefix, idPrefix); !ok || random == "" {
		return Record{}, &NotFoundError{Query: prefix}
	}
	for _, dir := range []string{recordsDir, goneDir} {
		ids, _, err := l.ids(dir)
		if err != nil {
			return Record{}, err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, prefix) })
		switch len(ids) {
		case 0:
			continue
		case 1:
			return l.findID(ids[0])
		}
		slices.Sort(ids)
		ambiguous := &AmbiguousError{Query: prefix, IDs: ids}
		for _, id := range ids[:min(len(ids), maxCandidates)] {
			// A damaged candidate still counts as a match; its id says enough.
			if r, err := l.Get(id); err == nil {
				ambiguous.Candidates = append(ambiguous.Candidates, r)
			} else {
				ambiguous.Candidates = append(ambiguous.Candidates, Record{ID: id, Name: id})
			}
		}
		return Record{}, ambiguous
	}
	return Record{}, &NotFoundError{Query: prefix}
}
