package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/config"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// clockSkew is how far another owner's clock may be from ours: their sandboxes are
// taken for expired only when they are by that much.
const clockSkew = 5 * time.Minute

type gcOptions struct {
	dryRun    bool
	olderThan string
}

func (a *App) newGCCommand() *cobra.Command {
	options := &gcOptions{}
	command := &cobra.Command{
		Use:   "gc [flags]",
		Short: "Remove what is expired or was left behind",
		Long: `Gc removes sandboxes whose lease is over, whoever owns them, and what commands of yours
left behind when they died: unfinished creates, and records of sandboxes that are gone.
It never touches anybody's live sandbox, nor what sandboxctl did not make. Images stay:
fetching them again costs time, so ` + "`sandboxctl image prune`" + ` is for those.`,
		Args: noArgs,
	}
	flags := command.Flags()
	flags.BoolVar(&options.dryRun, "dry-run", false, "show what would be removed and change nothing")
	flags.StringVar(&options.olderThan, "older-than", "", "only what was created at least this `DURATION` ago")
	flags.String("driver", "", "look at this driver only")
	return a.runs(command, func(ctx context.Context, _ []string) (output.Result, error) {
		only := ""
		if command.Flags().Changed("driver") {
			only = a.config.Driver
		}
		return a.runGC(ctx, options, only)
	})
}

// gcResult is gc's JSON.
type gcResult struct {
	output.Header
	DryRun bool `json:"dry_run"`
	// Removed is what was removed or, in a dry run, would be.
	Removed []gcRow        `json:"removed"`
	Errors  []output.Error `json:"errors"`
}

type gcRow struct {
	Name   string `json:"name"`
	ID     string `json:"id"`
	Driver string `json:"driver"`
	// Reason is expired, unfinished or gone.
	Reason string `json:"reason"`
	// Mine says that this state directory owned it.
	Mine bool `json:"mine"`
}

func (r *gcResult) Text(p *output.Printer) {
	if len(r.Removed) == 0 {
		if len(r.Errors) == 0 {
			p.Note("Nothing to remove.")
		}
		return
	}
	var rows [][]string
	for _, row := range r.Removed {
		rows = append(rows, []string{row.Name, row.ID, row.Driver, row.Reason})
	}
	p.Table([]string{"NAME", "ID", "DRIVER", "REASON"}, rows)
}

func (a *App) runGC(ctx context.Context, options *gcOptions, only string) (output.Result, error) {
	minAge := time.Duration(0)
	if options.olderThan != "" {
		var err error
		if minAge, err = config.ParseDuration("--older-than", options.olderThan); err != nil {
			return nil, &usageError{err}
		}
	}
	result := &gcResult{DryRun: options.dryRun, Removed: []gcRow{}, Errors: []output.Error{}}
	opened, err := a.openLedger()
	if err != nil {
		return result, err
	}
	records, problems, err := opened.List(ctx, ledger.Filter{Driver: only})
	if err != nil {
		return result, err
	}
	hosts, err := a.drivers()
	if err != nil {
		return result, err
	}
	sweep := &sweep{app: a, ledger: opened, result: result, dryRun: options.dryRun, before: a.Now().Add(-minAge)}
	asked := a.driversToAsk(records, true, only)
	failures := hosts.Each(ctx, asked, driversAtOnce, func(ctx context.Context, driver *host.Driver) error {
		return sweep.driver(ctx, driver, records)
	})
	for _, failure := range failures {
		sweep.fail("", fromDriver(failure.Driver, failure.Err))
	}
	if options.dryRun {
		sweep.problems(problems)
	} else {
		sweep.prune(ctx)
	}
	if len(result.Errors) > 0 {
		for _, failed := range result.Errors {
			a.printer.Warn("%s%s", prefix(failed.Sandbox), failed.Message)
		}
		return result, &partialError{what: "collecting garbage", failed: len(result.Errors), total: len(result.Errors) + len(result.Removed)}
	}
	return result, nil
}

func prefix(sandbox string) string {
	if sandbox == "" {
		return ""
	}
	return sandbox + ": "
}

// reap clears away an unfinished create whose process has died, or a sandbox whose lease
// is over, as gc would: what the backend has of it first, then the record.
func (a *App) reap(ctx context.Context, opened *ledger.Ledger, record ledger.Record, driver *host.Driver) error {
	if record.Driver != driver.Name() {
		other, err := a.startDriver(ctx, record.Driver)
		if err != nil {
			return err
		}
		defer other.Close()
		driver = other
	}
	_, err := destroyRecord(ctx, opened, record.ID, driver, a.reasonToRemove)
	return fromDriver(driver.Name(), err)
}

// destroyRecord removes a sandbox and its record while nobody else can change the
// record. That may have changed since it was listed: a create that was under way may
// have succeeded, a lease may have been renewed. So why says anew what the reason is;
// without one nothing is removed.
func destroyRecord(ctx context.Context, opened *ledger.Ledger, id string, driver *host.Driver, why func(ledger.Record) string) (removed bool, err error) {
	err = opened.WithLock(ctx, id, func(locked *ledger.Locked) error {
		record := locked.Record()
		reason := why(record)
		if record.State == ledger.StateGone || reason == "" {
			return nil
		}
		if _, err := driver.Destroy(ctx, refOf(record)); err != nil && plugin.KindOf(err) != plugin.KindNotFound {
			return err
		}
		removed = true
		// Also of an intent a tombstone stays: a backend that was asked by a process that
		// is dead now may yet make the sandbox, and a later gc has to know it.
		return locked.SetGone(reason)
	})
	var unknown *ledger.NotFoundError
	if errors.As(err, &unknown) {
		// Another gc was faster.
		return false, nil
	}
	return removed, err
}
