package ledger

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Filter selects records. The zero Filter selects everything that is not gone.
type Filter struct {
	Driver string
	// Labels must all be present with these values.
	Labels map[string]string
	// States to include; none means all but gone.
	States []State
}

func (f Filter) matches(r Record) bool {
	if f.Driver != "" && r.Driver != f.Driver {
		return false
	}
	for k, v := range f.Labels {
		if have, ok := r.Labels[k]; !ok || have != v {
			return false
		}
	}
	if len(f.States) == 0 {
		return r.State != StateGone
	}
	return slices.Contains(f.States, r.State)
}

// List returns the records that filter selects, oldest first, and a Problem for every file that cannot be understood,
// whatever the filter. It takes no lock and needs no write permission. The error is ctx's or a *StateDirError.
//
// Other processes may change the ledger meanwhile, and some file systems leave a file out of a directory listing while it
// is being replaced. Whoever is about to act on the absence of a record asks Get.
func (l *Ledger) List(ctx context.Context, filter Filter) ([]Record, []Problem, error) {
	dirs := []string{recordsDir}
	if slices.Contains(filter.States, StateGone) {
		// In this order a record that is being moved is seen at least once.
		dirs = append(dirs, goneDir)
	}
	var found []listed
	for _, dir := range dirs {
		some, err := l.readAll(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, some...)
	}
	records := make([]Record, 0, len(found))
	var problems []Problem
	for _, f := range found {
		// A file that went away since the directory was read is neither.
		if problem, ok := errors.AsType[Problem](f.err); ok {
			problems = append(problems, problem)
		} else if f.err == nil && filter.matches(f.record) {
			records = append(records, f.record)
		}
	}
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID), b.GoneAt.Compare(a.GoneAt))
	})
	// One that was read in both directories went meanwhile; the tombstone sorts first and stays.
	records = slices.CompactFunc(records, func(a, b Record) bool { return a.ID == b.ID })
	slices.SortFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	return records, problems, nil
}

type listed struct {
	record Record
	err    error
}

// readAll reads every record of one subdirectory, on all processors: it is the cost of ls.
func (l *Ledger) readAll(ctx context.Context, dir string) ([]listed, error) {
	ids, strays, err := l.ids(dir)
	if err != nil {
		return nil, err
	}
	all := make([]listed, len(ids))
	group, ctx := errgroup.WithContext(ctx)
	share := (len(ids) + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	for start := 0; start < len(ids); start += share {
		group.Go(func() error {
			var buf []byte
			for i := start; i < min(start+share, len(ids)) && ctx.Err() == nil; i++ {
				path := filepath.Join(l.dir, dir, ids[i]+recordExt)
				all[i].record, buf, all[i].err = readRecord(path, ids[i], buf)
			}
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, stray := range strays {
		path := filepath.Join(l.dir, dir, stray)
		all = append(all, listed{err: Problem{Path: path, Err: errors.New("its name is not that of a record")}})
	}
	return all, nil
}
