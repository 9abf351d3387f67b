package cli

import (
	"context"
	"errors"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// target is a sandbox that a command works on, and its driver, which has to be closed.
type target struct {
	record ledger.Record
	driver *host.Driver
}

func (t *target) ref() plugin.Ref { return refOf(t.record) }

// find looks a sandbox up by name, id or the start of an id. It starts nothing.
func (a *App) find(ctx context.Context, query string) (ledger.Record, error) {
	opened, err := a.openLedger()
	if err != nil {
		return ledger.Record{}, err
	}
	record, err := opened.Find(ctx, query)
	if err == nil && record.Abandoned() {
		// The process may have finished the create and ended since the record was read.
		record, err = opened.Get(record.ID)
	}
	if err != nil {
		return ledger.Record{}, err
	}
	if record.State == ledger.StateIntent || record.State == ledger.StateCreated {
		if record.Abandoned() {
			return record, &hintedError{
				plugin.NotFoundf("the sandbox %s was never finished: the command that was creating it has died", record.Name),
				"run `sandboxctl gc` to clear it away",
			}
		}
		return record, plugin.Errorf(plugin.KindConflict, "the sandbox %s is still being created", record.Name).
			WithHint("try again in a moment")
	}
	return record, nil
}

// open finds a sandbox and starts its driver.
func (a *App) open(ctx context.Context, query string) (*target, error) {
	record, err := a.find(ctx, query)
	if err != nil {
		return nil, err
	}
	driver, err := a.startDriver(ctx, record.Driver)
	if err != nil {
		return nil, err
	}
	return &target{record: record, driver: driver}, nil
}

// gone explains a driver's "not found" for a sandbox that the ledger knows.
func gone(record ledger.Record, err error) error {
	err = fromDriver(record.Driver, err)
	if plugin.KindOf(err) != plugin.KindNotFound {
		return err
	}
	return &hintedError{err, "it has ended or was removed by someone else; `sandboxctl gc` forgets it"}
}

// describeRecord joins what the ledger and the backend say about a sandbox. Without a
// word from the backend its state is unknown.
func (a *App) describeRecord(record ledger.Record, sandbox *plugin.Sandbox) output.Sandbox {
	row := output.Sandbox{
		Name: record.Name, ID: record.ID, Driver: record.Driver, State: "unknown", Mine: true,
		Labels: orEmpty(record.Labels), CreatedAt: record.CreatedAt, Expired: record.Expired(a.Now()),
	}
	if !record.ExpiresAt.IsZero() {
		row.ExpiresAt = &record.ExpiresAt
	}
	switch {
	case record.State == ledger.StateGone:
		row.State = "gone"
	case record.Abandoned():
		row.State = string(plugin.StateFailed)
		row.StateReason = "the command that was creating it has died"
	case record.State != ledger.StateReady:
		row.State = string(plugin.StateCreating)
	}
	if sandbox != nil {
		row.State, row.StateReason = string(sandbox.State), sandbox.StateReason
		row.Image, row.Workdir, row.Network = sandbox.Image, sandbox.Workdir, describeNetwork(sandbox.Network)
	}
	return row
}

// describeSandbox is for a sandbox that only the backend knows.
func (a *App) describeSandbox(driver string, sandbox *plugin.Sandbox, owner string) output.Sandbox {
	row := output.Sandbox{
		Name: sandbox.Name, ID: sandbox.ID, Driver: driver, State: string(sandbox.State), StateReason: sandbox.StateReason,
		Image: sandbox.Image, Labels: orEmpty(sandbox.Labels), Network: describeNetwork(sandbox.Network), Workdir: sandbox.Workdir,
		Mine: sandbox.Owner == owner && owner != "", CreatedAt: sandbox.CreatedAt,
	}
	if !sandbox.ExpiresAt.IsZero() {
		row.ExpiresAt = &sandbox.ExpiresAt
		row.Expired = !a.Now().Before(sandbox.ExpiresAt)
	}
	return row
}

func describeNetwork(policy plugin.NetworkPolicy) *output.Network {
	if policy.Mode == "" {
		return nil
	}
	return &output.Network{Mode: string(policy.Mode), Hosts: append([]string{}, policy.Hosts...), CIDRs: append([]string{}, policy.CIDRs...)}
}

func orEmpty(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

func isNotFound(err error) bool {
	var unknown *ledger.NotFoundError
	return errors.As(err, &unknown) || plugin.KindOf(err) == plugin.KindNotFound
}
