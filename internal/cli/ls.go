package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// driversAtOnce is how many drivers are asked in parallel.
const driversAtOnce = 8

// listTimeout bounds what one driver may take for a listing.
const listTimeout = 30 * time.Second

type lsOptions struct {
	all, quiet, offline bool
	labels              []string
}

func (a *App) newLsCommand() *cobra.Command {
	options := &lsOptions{}
	command := &cobra.Command{
		Use:     "ls [flags] [SANDBOX:PATH]",
		Aliases: []string{"list"},
		Short:   "List sandboxes, or a directory in one",
		Example: `  sandboxctl ls
  sandboxctl ls --label job=42 --quiet
  sandboxctl ls demo:/workspace`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := command.Flags()
	flags.String("driver", "", "ask only this driver")
	flags.StringArrayVar(&options.labels, "label", nil, "only those with this label, `K=V`; may be repeated")
	flags.BoolVar(&options.all, "all", false, "ask every configured driver, and show what others own too")
	flags.BoolVarP(&options.quiet, "quiet", "q", false, "print names only")
	flags.BoolVar(&options.offline, "offline", false, "show what this machine remembers and start no driver")
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		if len(args) == 1 {
			return a.runLsPath(ctx, args[0])
		}
		only := ""
		if command.Flags().Changed("driver") {
			only = a.config.Driver
		}
		return a.runLs(ctx, options, only)
	})
}

// lsResult is ls's JSON.
type lsResult struct {
	output.Header
	Sandboxes []output.Sandbox `json:"sandboxes"`
	// Errors has an entry for each driver that could not be asked.
	Errors []output.Error `json:"errors"`

	quiet, all bool
	now        time.Time
}

func (r *lsResult) Text(p *output.Printer) {
	if r.quiet {
		for _, sandbox := range r.Sandboxes {
			p.Line("%s", output.Printable(sandbox.Name))
		}
		return
	}
	if len(r.Sandboxes) == 0 {
		if len(r.Errors) == 0 {
			p.Note("No sandboxes. Create one with `sandboxctl create`.")
		}
		return
	}
	headings := []string{"NAME", "ID", "DRIVER", "STATE", "CREATED", "EXPIRES"}
	if r.all {
		headings = append(headings, "MINE")
	}
	var rows [][]string
	for _, sandbox := range r.Sandboxes {
		row := []string{sandbox.Name, sandbox.ID, sandbox.Driver, sandbox.State, output.Ago(sandbox.CreatedAt, r.now), output.Until(sandbox.ExpiresAt, r.now)}
		if r.all {
			row = append(row, map[bool]string{true: "yes", false: "no"}[sandbox.Mine])
		}
		rows = append(rows, row)
	}
	p.Table(headings, rows)
}

func (a *App) runLs(ctx context.Context, options *lsOptions, only string) (output.Result, error) {
	labels, err := parsePairs("--label", options.labels)
	switch {
	case err != nil:
		return nil, &usageError{err}
	case options.all && options.offline:
		return nil, usagef("--all asks the drivers and --offline does not; choose one")
	}
	result := &lsResult{Sandboxes: []output.Sandbox{}, Errors: []output.Error{}, quiet: options.quiet, all: options.all, now: a.Now()}
	opened, err := a.openLedger()
	if err != nil {
		return result, err
	}
	records, problems, err := opened.List(ctx, ledger.Filter{Driver: only, Labels: labels})
	if err != nil {
		return result, err
	}
	for _, problem := range problems {
		a.printer.Warn("%s", problem)
	}
	if options.offline {
		for _, record := range records {
			result.Sandboxes = append(result.Sandboxes, a.describeRecord(record, nil))
		}
		return result, nil
	}
	listings, failures := a.listDrivers(ctx, a.driversToAsk(records, options.all, only), opened.Owner(), options.all)
	result.Sandboxes = a.reconcile(records, listings, opened.Owner(), labels, options.all)
	for _, failure := range failures {
		told, _ := describeFailure(fromDriver(failure.Driver, failure.Err))
		told.Cause = fromDriver(failure.Driver, failure.Err)
		result.Errors = append(result.Errors, *told)
	}
	return result, partialListing(result.Errors, len(listings)+len(failures))
}

// partialListing keeps a driver's failure from looking like an empty list.
func partialListing(failures []output.Error, asked int) error {
	if len(failures) == 0 {
		return nil
	}
	var texts []string
	for _, failure := range failures {
		texts = append(texts, fmt.Sprintf("%s: %s", failure.Driver, failure.Message))
	}
	return &hintedError{
		&partialError{what: "asking drivers (" + strings.Join(texts, "; ") + ")", failed: len(failures), total: asked},
		failures[0].Hint,
	}
}

// driversToAsk is the drivers that hold something of ours or, for all, every driver
// that is configured, and the default one.
func (a *App) driversToAsk(records []ledger.Record, all bool, only string) []string {
	if only != "" {
		return []string{only}
	}
	names := map[string]bool{}
	for _, record := range records {
		names[record.Driver] = true
	}
	if all {
		names[a.config.Driver] = true
		for name := range a.config.Drivers {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// listDrivers asks drivers in parallel what they have.
func (a *App) listDrivers(ctx context.Context, names []string, owner string, all bool) (map[string]*plugin.SandboxList, []host.Failure) {
	if len(names) == 0 {
		return nil, nil
	}
	drivers, err := a.drivers()
	if err != nil {
		return nil, []host.Failure{{Err: err}}
	}
	request := plugin.ListRequest{Owner: owner}
	if all {
		request.Owner = ""
	}
	var mu sync.Mutex
	listings := map[string]*plugin.SandboxList{}
	failures := drivers.Each(ctx, names, driversAtOnce, func(ctx context.Context, driver *host.Driver) error {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		list, err := driver.List(ctx, request)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		listings[driver.Name()] = list
		for _, warning := range list.Warnings {
			a.printer.Warn("driver %s: %s", driver.Name(), warning)
		}
		return nil
	})
	return listings, failures
}

// reconcile joins the ledger's records with what the drivers list. A ready sandbox that
// its driver does not list is gone; one that only a driver knows is shown too.
func (a *App) reconcile(records []ledger.Record, listings map[string]*plugin.SandboxList, owner string, labels map[string]string, all bool) []output.Sandbox {
	byID := map[string]map[string]*plugin.Sandbox{}
	for driver, list := range listings {
		byID[driver] = map[string]*plugin.Sandbox{}
		for _, sandbox := range list.Sandboxes {
			byID[driver][sandbox.ID] = sandbox
		}
	}
	rows := []output.Sandbox{}
	for _, record := range records {
		found, asked := byID[record.Driver]
		sandbox := found[record.ID]
		delete(found, record.ID)
		row := a.describeRecord(record, sandbox)
		if asked && sandbox == nil && record.State == ledger.StateReady {
			row.State, row.StateReason = "gone", "the backend no longer has it"
		}
		rows = append(rows, row)
	}
	for driver, rest := range byID {
		for _, sandbox := range rest {
			row := a.describeSandbox(driver, sandbox, owner)
			if (row.Mine || all) && hasLabels(row.Labels, labels) {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(x, y output.Sandbox) int {
		if order := x.CreatedAt.Compare(y.CreatedAt); order != 0 {
			return order
		}
		return strings.Compare(x.ID, y.ID)
	})
	return rows
}

func hasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}
