package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
)

// removeTimeout bounds one removal.
const removeTimeout = 2 * time.Minute

// removalContext returns a context for a removal that has to be tried even after a
// signal. Then it ends soon, so that the command can still say what is left.
func removalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	removal, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(cleanupTimeout, cancel) })
	return removal, func() {
		stop()
		cancel()
	}
}

type rmOptions struct {
	force, all bool
	labels     []string
}

func (a *App) newRmCommand() *cobra.Command {
	options := &rmOptions{}
	command := &cobra.Command{
		Use:     "rm [flags] SANDBOX...",
		Aliases: []string{"destroy"},
		Short:   "Remove sandboxes",
		Example: `  sandboxctl rm demo
  sandboxctl rm -f --all --label job=42`,
	}
	flags := command.Flags()
	flags.BoolVarP(&options.force, "force", "f", false, "do not ask, and do not mind sandboxes that do not exist")
	flags.BoolVar(&options.all, "all", false, "remove all of your sandboxes")
	flags.StringArrayVar(&options.labels, "label", nil, "with --all: only those with this label, `K=V`; may be repeated")
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runRm(ctx, options, args)
	})
}

// rmResult is rm's JSON.
type rmResult struct {
	output.Header
	Removed []removedSandbox `json:"removed"`
	Errors  []output.Error   `json:"errors"`
}

type removedSandbox struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	// AlreadyGone says that the backend no longer had it.
	AlreadyGone bool `json:"already_gone"`
}

func (r *rmResult) Text(p *output.Printer) {
	for _, removed := range r.Removed {
		p.Line("%s", removed.Name)
	}
}

func (a *App) runRm(ctx context.Context, options *rmOptions, args []string) (output.Result, error) {
	labels, err := parsePairs("--label", options.labels)
	switch {
	case err != nil:
		return nil, &usageError{err}
	case options.all && len(args) > 0:
		return nil, usagef("--all and names do not go together")
	case !options.all && len(labels) > 0:
		return nil, usagef("--label chooses among --all; add --all")
	case !options.all && len(args) == 0:
		return nil, usagef("name the sandboxes to remove, or say --all; `sandboxctl ls` lists them")
	}
	result := &rmResult{Removed: []removedSandbox{}, Errors: []output.Error{}}
	var records []ledger.Record
	if options.all {
		records, err = a.allRecords(ctx, labels)
		if err == nil {
			err = a.confirmRemoval(options, records)
		}
		if err != nil {
			return result, err
		}
	} else {
		records = a.findForRemoval(ctx, options, args, result)
	}
	a.removeRecords(ctx, records, result)
	total := len(result.Errors) + len(result.Removed)
	if total > 1 && a.printer.Format() == output.Text {
		for _, failed := range result.Errors {
			a.printer.Failure(&failed)
		}
	}
	return result, result.outcome(total)
}

// outcome returns the single failure as it is, and several as a partial one.
func (r *rmResult) outcome(total int) error {
	switch {
	case len(r.Errors) == 0:
		return nil
	case total == 1:
		return r.Errors[0].Cause
	}
	return &partialError{what: "removing sandboxes", failed: len(r.Errors), total: total}
}

func (a *App) allRecords(ctx context.Context, labels map[string]string) ([]ledger.Record, error) {
	opened, err := a.openLedger()
	if err != nil {
		return nil, err
	}
	records, problems, err := opened.List(ctx, ledger.Filter{Labels: labels})
	for _, problem := range problems {
		a.printer.Warn("%s", problem)
	}
	return records, err
}

// confirmRemoval asks before everything goes, where there is somebody to ask.
func (a *App) confirmRemoval(options *rmOptions, records []ledger.Record) error {
	if options.force || len(records) == 0 {
		return nil
	}
	if !output.IsTerminal(a.Stdin) || a.printer.Format() == output.JSON {
		return usagef("removing all sandboxes needs --force where nobody can be asked")
	}
	var names []string
	for _, record := range records {
		names = append(names, record.Name)
	}
	fmt.Fprintf(a.Stderr, "Remove %s? [y/N] ", strings.Join(names, ", "))
	answer, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was removed")
	}
	return nil
}

func (a *App) findForRemoval(ctx context.Context, options *rmOptions, args []string, result *rmResult) []ledger.Record {
	var records []ledger.Record
	opened, err := a.openLedger()
	if err != nil {
		result.fail(a, "", err)
		return nil
	}
	for _, query := range args {
		record, err := opened.Find(ctx, query)
		switch {
		case isNotFound(err) && options.force:
			a.printer.Note("There is no sandbox %q.", query)
		case err != nil:
			result.fail(a, query, err)
		default:
			records = append(records, record)
		}
	}
	return records
}

// removeRecords removes sandboxes with one driver process for all of a driver's.
func (a *App) removeRecords(ctx context.Context, records []ledger.Record, result *rmResult) {
	drivers := map[string]*host.Driver{}
	defer func() {
		for _, driver := range drivers {
			driver.Close()
		}
	}()
	for _, record := range records {
		driver := drivers[record.Driver]
		if driver == nil {
			started, err := a.startDriver(ctx, record.Driver)
			if err != nil {
				result.fail(a, record.Name, err)
				continue
			}
			driver, drivers[record.Driver] = started, started
		}
		alreadyGone, err := a.remove(ctx, &target{record: record, driver: driver})
		if err != nil {
			result.fail(a, record.Name, fromDriver(record.Driver, err))
			continue
		}
		result.Removed = append(result.Removed, removedSandbox{Name: record.Name, ID: record.ID, AlreadyGone: alreadyGone})
	}
}

// fail notes one sandbox's failure.
func (r *rmResult) fail(a *App, sandbox string, err error) {
	told, _ := describeFailure(err)
	told.Sandbox = sandbox
	told.Cause = err
	r.Errors = append(r.Errors, *told)
}

// remove destroys a sandbox and buries its record. While it does, no other process can
// change the record, so two removals at once do not disturb each other.
func (a *App) remove(ctx context.Context, found *target) (alreadyGone bool, err error) {
	opened, err := a.openLedger()
	if err != nil {
		return false, err
	}
	err = opened.WithLock(ctx, found.record.ID, func(locked *ledger.Locked) error {
		record := locked.Record()
		if record.State == ledger.StateGone {
			alreadyGone = true
			return nil
		}
		alreadyGone, err = a.destroy(ctx, found.driver, refOf(record))
		if err != nil {
			return err
		}
		return locked.SetGone("removed")
	})
	return alreadyGone, err
}
