package cli

import (
	"context"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// sweep is one run of gc. Drivers are swept in parallel; one failure never stops it.
type sweep struct {
	app    *App
	ledger *ledger.Ledger
	dryRun bool
	// before is the latest time of creation that is looked at.
	before time.Time

	mu     sync.Mutex
	result *gcResult
}

// The reasons for a removal.
const (
	reasonExpired    = "expired"
	reasonUnfinished = "unfinished"
	reasonGone       = "gone"
)

// driver sweeps one driver: our own records of it first, then what only it knows.
func (s *sweep) driver(ctx context.Context, driver *host.Driver, records []ledger.Record) error {
	list, err := driver.List(ctx, plugin.ListRequest{})
	if err != nil {
		return err
	}
	for _, warning := range list.Warnings {
		s.fail("", fromDriver(driver.Name(), plugin.Errorf(plugin.KindInternal, "a row of the listing could not be read: %s", warning)))
	}
	listed := map[string]*plugin.Sandbox{}
	for _, sandbox := range list.Sandboxes {
		listed[sandbox.ID] = sandbox
	}
	for _, record := range records {
		if record.Driver == driver.Name() {
			s.record(ctx, driver, record, listed[record.ID])
			delete(listed, record.ID)
		}
	}
	for _, sandbox := range listed {
		s.foreign(ctx, driver, sandbox)
	}
	return nil
}

// record decides about a sandbox of ours.
func (s *sweep) record(ctx context.Context, driver *host.Driver, record ledger.Record, sandbox *plugin.Sandbox) {
	reason := s.reason(record)
	if reason == "" && record.State == ledger.StateReady && sandbox == nil && !record.CreatedAt.After(s.before) {
		reason = reasonGone
	}
	if reason == "" {
		return
	}
	row := gcRow{Name: record.Name, ID: record.ID, Driver: record.Driver, Reason: reason, Mine: true}
	s.remove(row, func() (bool, error) {
		if reason == reasonGone {
			return s.confirmGone(ctx, driver, record)
		}
		return destroyRecord(ctx, s.ledger, record.ID, driver, s.reason)
	})
}

// reason is why a sandbox of ours has to go, as far as its record tells.
func (s *sweep) reason(record ledger.Record) string {
	if record.CreatedAt.After(s.before) {
		return ""
	}
	return s.app.reasonToRemove(record)
}

// reasonToRemove is why a sandbox has no right to be there any more, or empty.
func (a *App) reasonToRemove(record ledger.Record) string {
	switch {
	case record.Abandoned():
		return reasonUnfinished
	case record.Expired(a.Now()):
		return reasonExpired
	}
	return ""
}

// confirmGone asks again before it forgets a sandbox: a listing may lag behind.
func (s *sweep) confirmGone(ctx context.Context, driver *host.Driver, record ledger.Record) (gone bool, err error) {
	_, err = driver.Inspect(ctx, refOf(record))
	if plugin.KindOf(err) != plugin.KindNotFound {
		return false, err
	}
	_, err = s.ledger.SetGone(ctx, record.ID, "the backend no longer has it")
	return err == nil, err
}

// foreign decides about a sandbox that is not in our ledger: another owner's, or ours
// from a state directory that was lost. Only its own labels speak for it.
func (s *sweep) foreign(ctx context.Context, driver *host.Driver, sandbox *plugin.Sandbox) {
	// A driver lists only what carries our labels; one that does not is not believed.
	if sandbox.Owner == "" || !ledger.IsID(sandbox.ID) || sandbox.CreatedAt.After(s.before) {
		return
	}
	mine := sandbox.Owner == s.ledger.Owner()
	reason := ""
	switch {
	case mine && s.buried(sandbox.ID):
		reason = reasonUnfinished
	case !sandbox.ExpiresAt.IsZero() && !s.app.Now().Before(sandbox.ExpiresAt.Add(clockSkew)):
		reason = reasonExpired
	default:
		return
	}
	row := gcRow{Name: sandbox.Name, ID: sandbox.ID, Driver: driver.Name(), Reason: reason, Mine: mine}
	s.remove(row, func() (bool, error) {
		_, err := driver.Destroy(ctx, plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle})
		return err == nil, err
	})
}

// buried reports whether the ledger has a tombstone of a sandbox that is there all the
// same: its backend finished a create after everybody had given it up, or had said that
// there is nothing when there was.
func (s *sweep) buried(id string) bool {
	record, err := s.ledger.Get(id)
	return err == nil && record.State == ledger.StateGone
}

// remove notes a removal, and does it unless this is a dry run. Nothing is noted of
// what turned out to be alive, or already removed by somebody else.
func (s *sweep) remove(row gcRow, do func() (removed bool, err error)) {
	if !s.dryRun {
		removed, err := do()
		if err != nil {
			s.fail(row.Name, fromDriver(row.Driver, err))
		}
		if err != nil || !removed {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Removed = append(s.result.Removed, row)
}

func (s *sweep) fail(sandbox string, err error) {
	told, _ := describeFailure(err)
	told.Sandbox = sandbox
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Errors = append(s.result.Errors, *told)
}

// prune tidies the ledger itself.
func (s *sweep) prune(ctx context.Context) {
	problems, err := s.ledger.Prune(ctx, s.app.Now())
	s.problems(problems)
	if err != nil {
		s.fail("", err)
	}
}

// problems notes the ledger's files that cannot be understood: nobody can tell whether
// there is something to remove.
func (s *sweep) problems(problems []ledger.Problem) {
	for _, problem := range problems {
		s.fail(problem.ID, problem)
	}
}
