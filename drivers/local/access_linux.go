package local

import (
	"context"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// AccessLog implements plugin.AccessLogger. The log is the keeper's and goes with it.
func (d *Driver) AccessLog(ctx context.Context, ref plugin.Ref) ([]plugin.Access, error) {
	found, known, err := d.find(ref)
	if err != nil || !known.networked() {
		return nil, err
	}
	answer, err := found.ask(ctx, askAccesses)
	if err != nil {
		return nil, plugin.Errorf(plugin.KindUnavailable, "the keeper of the sandbox %s, which has the log, does not answer: %w", found.id, err).
			WithHint("without its keeper the sandbox has no network; make a new one")
	}
	accesses := make([]plugin.Access, 0, len(answer.Accesses))
	for _, each := range answer.Accesses {
		accesses = append(accesses, plugin.Access{
			Verdict: plugin.AccessVerdict(each.Verdict), Protocol: each.Protocol, Host: each.Host, Address: each.Address, Port: each.Port,
			Reason: each.Reason, Count: each.Count, First: each.First, Last: each.Last,
		})
	}
	return accesses, nil
}
