package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Prune cleans up after crashes and old age: tombstones older than TombstoneTTL at now, index entries that point nowhere
// or are missing, temporary files and lock files of killed processes. It may run at any time, next to anything, in several
// processes at once; what is in use is left for the next time. Problems are files it could not understand and left alone.
// The error is ctx's or a *StateDirError.
func (l *Ledger) Prune(ctx context.Context, now time.Time) ([]Problem, error) {
	if l.unwritable != nil {
		return nil, l.unwritable
	}
	records, problems, err := l.List(ctx, Filter{States: []State{StateIntent, StateCreated, StateReady, StateGone}})
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if err := ctx.Err(); err != nil {
			return problems, err
		}
		if r.State == StateGone {
			if err := l.pruneTombstone(r, now); err != nil {
				return problems, err
			}
			continue
		}
		problem, err := l.repairIndex(r)
		if err != nil {
			return problems, err
		}
		if problem != nil {
			problems = append(problems, *problem)
		}
	}
	for _, sweep := range []func() error{l.sweepIndex, l.sweepTemps, l.sweepLocks} {
		if err := sweep(); err != nil {
			return problems, err
		}
	}
	return problems, ctx.Err()
}

// pruneTombstone finishes a SetGone that was cut off before the move, and removes a tombstone that is old enough. The index
// entry that still points at it is left to sweepIndex.
func (l *Ledger) pruneTombstone(r Record, now time.Time) error {
	// Nobody writes to a tombstone, so there is nothing to lock.
	if err := l.bury(r.ID); err != nil {
		return err
	}
	// One from far in the future was made while the clock was wrong, and would stay as long.
	if age := now.Sub(r.GoneAt).Abs(); age < TombstoneTTL {
		return nil
	}
	return l.remove(l.gonePath(r.ID))
}

// repairIndex makes the name of a live record lead to it. A second live record of the same name can only come from files
// that were copied or deleted by hand; it is reported, since either could be the right one.
func (l *Ledger) repairIndex(r Record) (problem *Problem, err error) {
	if r.Name == r.ID {
		return nil, nil
	}
	if id, err := l.indexed(r.Name); err == nil && id == r.ID {
		return nil, nil
	}
	err = l.whenFree(nameKey(r.Name), func() error {
		// Only now is it certain that no Begin or SetGone is half way through.
		current, err := l.Get(r.ID)
		if err != nil || current.State == StateGone {
			return nil
		}
		id, err := l.indexed(r.Name)
		if err == nil && id != r.ID {
			if other, err := l.Get(id); err == nil && other.State != StateGone && other.Name == r.Name {
				problem = &Problem{Path: l.recordPath(r.ID), ID: r.ID, Err: fmt.Errorf("the sandbox %s has the name %q too", other.ID, r.Name)}
				return nil
			}
		}
		if err := l.setIndex(r.Name, r.ID); err != nil {
			return l.dirError("write to", err)
		}
		return nil
	})
	return problem, err
}

// sweepIndex removes the entries that lead to no file at all. One that leads to a damaged record stays: its name is taken.
func (l *Ledger) sweepIndex() error {
	return l.eachFile(namesDir, func(file string) error {
		escaped, ok := strings.CutSuffix(file, indexExt)
		name, valid := unescapeName(escaped)
		if !ok || !valid || !l.dangles(name) {
			return nil
		}
		return l.whenFree(nameKey(name), func() error {
			if !l.dangles(name) {
				return nil
			}
			return l.remove(l.indexPath(name))
		})
	})
}

func (l *Ledger) dangles(name string) bool {
	id, err := l.indexed(name)
	if err != nil {
		return errors.Is(err, errBadIndex)
	}
	_, err = l.Get(id)
	_, missing := errors.AsType[*NotFoundError](err)
	return missing
}

// sweepTemps removes what killed writers left. Every file is written under a lock that its name leads to, so a temporary
// file whose lock is free has no writer.
func (l *Ledger) sweepTemps() error {
	for _, dir := range []string{".", recordsDir, namesDir} {
		err := l.eachFile(dir, func(file string) error {
			key, ok := tempKey(file)
			if !ok {
				return nil
			}
			return l.whenFree(key, func() error { return l.remove(filepath.Join(l.dir, dir, file)) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tempKey returns the key of the lock under which the temporary file was written; see replaceFile for its name.
func tempKey(file string) (key string, ok bool) {
	target, hidden := strings.CutPrefix(strings.TrimRight(file, "0123456789"), ".")
	if !hidden {
		return "", false
	}
	if id, ok := strings.CutSuffix(target, recordExt); ok && IsID(id) {
		return id, true
	}
	if escaped, ok := strings.CutSuffix(target, indexExt); ok {
		name, ok := unescapeName(escaped)
		return nameKey(name), ok
	}
	return ownerFile, target == ownerFile
}

// sweepLocks removes the lock files of killed processes; taking and releasing a lock does just that.
func (l *Ledger) sweepLocks() error {
	return l.eachFile(locksDir, func(file string) error {
		return l.whenFree(file, func() error { return nil })
	})
}

func (l *Ledger) eachFile(sub string, fn func(file string) error) error {
	files, err := os.ReadDir(filepath.Join(l.dir, sub))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.dirError("read", err)
	}
	for _, file := range files {
		if !file.Type().IsRegular() {
			continue
		}
		if err := fn(file.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.dirError("write to", err)
	}
	return nil
}
