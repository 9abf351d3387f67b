package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func (a *App) newRenewCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "renew SANDBOX --ttl DURATION",
		Short:   "Let a sandbox live longer, or end sooner",
		Example: `  sandboxctl renew demo --ttl 2h`,
		Args:    oneSandbox,
	}
	command.Flags().String("ttl", "", "how long it may live from now on, a `DURATION` such as 90m; 0 for no end")
	if err := command.MarkFlagRequired("ttl"); err != nil {
		panic(err)
	}
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runRenew(ctx, args[0], a.config.TTL)
	})
}

// renewResult is renew's JSON.
type renewResult struct {
	output.Header
	output.Sandbox

	now time.Time
}

func (r *renewResult) Text(p *output.Printer) {
	p.Line("%s expires %s", r.Name, output.Until(r.ExpiresAt, r.now))
}

func (a *App) runRenew(ctx context.Context, query string, ttl time.Duration) (output.Result, error) {
	found, err := a.open(ctx, query)
	if err != nil {
		return nil, err
	}
	defer found.driver.Close()
	lease := found.driver.Info.Capabilities.Lease
	switch {
	case !lease.Renew:
		err = plugin.Refusedf("renew", "driver %s cannot move a sandbox's end", found.record.Driver).
			WithHint("create a new sandbox with a longer --ttl")
	case ttl == 0 && !lease.Unlimited:
		err = plugin.Refusedf("--ttl 0", "driver %s cannot keep a sandbox without an end", found.record.Driver)
	case ttl != 0 && ttl < lease.MinTTL:
		err = plugin.Refusedf("--ttl", "driver %s renews for at least %s, not %s", found.record.Driver, lease.MinTTL, ttl)
	}
	if err != nil {
		return nil, fromDriver(found.record.Driver, err)
	}
	record, err := a.renew(ctx, found, expiry(a.Now(), ttl))
	if err != nil {
		return nil, err
	}
	return &renewResult{Sandbox: a.describeRecord(record, nil), now: a.Now()}, nil
}

// renew moves the end of a lease at the backend and in the ledger. Nobody else can do
// so, or remove the sandbox, in between: the two would no longer agree.
func (a *App) renew(ctx context.Context, found *target, expires time.Time) (renewed ledger.Record, err error) {
	opened, err := a.openLedger()
	if err != nil {
		return renewed, err
	}
	err = opened.WithLock(ctx, found.record.ID, func(locked *ledger.Locked) error {
		if record := locked.Record(); record.State == ledger.StateGone {
			return &ledger.NotFoundError{Query: record.Name, Gone: &record}
		}
		given, err := found.driver.Renew(ctx, found.ref(), expires)
		if err != nil {
			return gone(found.record, err)
		}
		err = locked.SetExpiry(given)
		renewed = locked.Record()
		return err
	})
	return renewed, err
}
