package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/internal/spec"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// cleanupTimeout bounds what is done about a create that failed, on a context of its
// own: an interrupted command has five seconds in all.
const cleanupTimeout = 3 * time.Second

// provisioning is a wish for a sandbox.
type provisioning struct {
	driver, name string
	spec         *spec.Spec
	ifNotExists  bool
}

// provisioned is a sandbox that can be used. Its driver is running and has to be closed.
type provisioned struct {
	driver  *host.Driver
	record  ledger.Record
	sandbox *plugin.Sandbox
	// created is false when it existed before.
	created bool
}

// provision brings a sandbox about. Whatever happens, the ledger knows of it first:
// the intent is on disk before the driver is asked, and the backend's reference as
// soon as it is known.
func (a *App) provision(ctx context.Context, wish provisioning) (made *provisioned, err error) {
	opened, err := a.openLedger()
	if err != nil {
		return nil, err
	}
	driver, err := a.startDriver(ctx, wish.driver)
	if err != nil {
		return nil, err
	}
	defer func() {
		if made == nil {
			driver.Close()
		}
	}()
	if err := spec.Refuse(wish.spec, driver.Info); err != nil {
		return nil, fromDriver(wish.driver, err)
	}
	canonical, err := wish.spec.Canonical(opened.Owner())
	if err != nil {
		return nil, err
	}
	intent := ledger.Intent{
		Name: wish.name, Driver: wish.driver, RequestID: strings.ToLower(rand.Text()), Spec: canonical,
		Labels: wish.spec.Labels, ExpiresAt: expiry(a.Now(), wish.spec.TTL),
	}
	record, existing, err := a.begin(ctx, opened, driver, intent, wish.ifNotExists)
	if err != nil || existing != nil {
		return existing, err
	}
	return a.create(ctx, opened, driver, record, wish)
}

// begin writes the intent. A holder of the name that gc would remove is cleared away;
// one that lives is returned when that was wished for and the request is equal.
func (a *App) begin(ctx context.Context, opened *ledger.Ledger, driver *host.Driver, intent ledger.Intent, ifNotExists bool) (record ledger.Record, existing *provisioned, err error) {
	for {
		record, err = opened.Begin(ctx, intent)
		var taken *ledger.NameTakenError
		if !errors.As(err, &taken) {
			return record, nil, err
		}
		holder := taken.Existing
		switch {
		case a.reasonToRemove(holder) != "":
			if err := a.reap(ctx, opened, holder, driver); err != nil {
				return record, nil, err
			}
		case !ifNotExists:
			return record, nil, err
		default:
			settled, err := opened.WaitSettled(ctx, holder.ID)
			var dropped *ledger.NotFoundError
			if errors.As(err, &dropped) || err == nil && settled.State != ledger.StateReady {
				// Its create came to nothing, so now it is our turn.
				continue
			}
			if err != nil {
				return record, nil, err
			}
			existing, err := a.sameSandbox(ctx, opened, driver, settled, intent)
			if err != nil || existing != nil {
				return record, existing, err
			}
		}
	}
}

// sameSandbox returns an existing sandbox if it is what was asked for. One that the
// backend no longer has is forgotten, so that the name is free again, and nil returned.
func (a *App) sameSandbox(ctx context.Context, opened *ledger.Ledger, driver *host.Driver, existing ledger.Record, wanted ledger.Intent) (*provisioned, error) {
	conflict := func(difference string) error {
		return plugin.Errorf(plugin.KindConflict, "the sandbox %s exists and is not what was asked for: %s", existing.Name, difference).
			WithHint("remove it with `sandboxctl rm %s`, or take another name", existing.Name)
	}
	if existing.Driver != wanted.Driver {
		return nil, conflict(fmt.Sprintf("driver is %s, not %s", existing.Driver, wanted.Driver))
	}
	if difference := spec.Difference(existing.Spec, wanted.Spec); difference != "" {
		return nil, conflict(difference)
	}
	sandbox, err := driver.Inspect(ctx, refOf(existing))
	if plugin.KindOf(err) == plugin.KindNotFound {
		_, err = opened.SetGone(ctx, existing.ID, "the backend no longer has it")
		return nil, err
	}
	if err != nil {
		return nil, fromDriver(driver.Name(), err)
	}
	return &provisioned{driver: driver, record: existing, sandbox: sandbox}, nil
}

func (a *App) create(ctx context.Context, opened *ledger.Ledger, driver *host.Driver, record ledger.Record, wish provisioning) (*provisioned, error) {
	request := wish.spec.ForDriver()
	request.ID, request.Name, request.Owner = record.ID, record.Name, opened.Owner()
	request.RequestID, request.CreatedAt, request.ExpiresAt = record.RequestID, record.CreatedAt, record.ExpiresAt
	events := &createEvents{app: a, ledger: opened, id: record.ID}
	a.printer.Status("creating %s with driver %s", record.Name, driver.Name())
	sandbox, err := driver.Create(ctx, request, events)
	if err == nil {
		err = events.failure
	}
	if err != nil {
		return nil, a.undoCreate(ctx, opened, driver, record, err)
	}
	// The sandbox exists whatever happens to this process now.
	settle := context.WithoutCancel(ctx)
	ready, err := opened.SetReady(settle, record.ID, ledger.Ready{Handle: sandbox.Handle, ExpiresAt: sandbox.ExpiresAt})
	if err != nil {
		return nil, a.undoCreate(ctx, opened, driver, record, err)
	}
	return &provisioned{driver: driver, record: ready, sandbox: sandbox, created: true}, nil
}

// undoCreate settles the ledger after a create that failed. The driver has rolled back
// what it knows of; what it may have left is removed here, and what cannot be removed
// stays in the ledger for gc.
func (a *App) undoCreate(ctx context.Context, opened *ledger.Ledger, driver *host.Driver, record ledger.Record, cause error) error {
	cause = fromDriver(driver.Name(), cause)
	fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var typed *plugin.Error
	rolledBack := errors.As(cause, &typed) && !typed.LeftBehind && typed.Kind != plugin.KindIndeterminate
	if !rolledBack {
		if err := a.destroyAgain(fresh, driver, record.ID); err != nil {
			return &hintedError{
				fmt.Errorf("%w; the sandbox %s may still exist: %s", cause, record.ID, err),
				"run `sandboxctl gc` to remove it",
			}
		}
	}
	if err := forget(fresh, opened, record.ID, "its create failed"); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// destroyAgain removes a sandbox whose create has no known outcome.
func (a *App) destroyAgain(ctx context.Context, driver *host.Driver, id string) error {
	opened, err := a.openLedger()
	if err != nil {
		return err
	}
	record, err := opened.Get(id)
	if err != nil {
		return err
	}
	_, err = a.destroy(ctx, driver, refOf(record))
	return err
}

// destroy removes a sandbox from the backend, with a new driver process where the one
// that there was has crashed: the crash is often what made the removal necessary.
func (a *App) destroy(ctx context.Context, driver *host.Driver, ref plugin.Ref) (alreadyGone bool, err error) {
	alreadyGone, err = driver.Destroy(ctx, ref)
	var crashed *host.CrashError
	var lost *plugin.ConnectionError
	if !errors.As(err, &crashed) && !errors.As(err, &lost) {
		return alreadyGone, err
	}
	again, err := a.startDriver(ctx, driver.Name())
	if err != nil {
		return false, err
	}
	defer again.Close()
	return again.Destroy(ctx, ref)
}

// forget takes a sandbox that does not exist out of the ledger.
func forget(ctx context.Context, opened *ledger.Ledger, id, reason string) error {
	return opened.WithLock(ctx, id, func(locked *ledger.Locked) error {
		if locked.Record().State == ledger.StateIntent {
			return locked.Drop()
		}
		return locked.SetGone(reason)
	})
}

func refOf(record ledger.Record) plugin.Ref {
	return plugin.Ref{ID: record.ID, Handle: record.Handle}
}

// createEvents writes the backend's reference into the ledger and shows progress.
type createEvents struct {
	app    *App
	ledger *ledger.Ledger
	id     string
	// failure is that the reference could not be written.
	failure error
}

func (e *createEvents) Created(handle []byte) {
	// The write must happen even if the user has just pressed Ctrl-C.
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if _, err := e.ledger.SetCreated(ctx, e.id, handle); err != nil {
		e.failure = err
	}
}

func (e *createEvents) Progress(progress plugin.Progress) {
	e.app.showProgress(progress)
}

func (e *createEvents) Warn(message string) { e.app.printer.Warn("%s", message) }
