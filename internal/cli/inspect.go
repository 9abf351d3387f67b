package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
)

func (a *App) newInspectCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "inspect SANDBOX",
		Short: "Show all that is known about a sandbox",
		Example: `  sandboxctl inspect demo
  sandboxctl inspect --network demo    # what it tried to reach, and what was refused`,
		Args: oneSandbox,
	}
	network := command.Flags().Bool("network", false, "show what the sandbox tried to reach, and why it could not")
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runInspect(ctx, args[0], *network)
	})
}

// inspectResult is inspect's JSON.
type inspectResult struct {
	output.Header
	output.Sandbox
	// Requested is what create was asked for, as the ledger keeps it: of variables
	// there are names and digests only.
	Requested json.RawMessage `json:"requested,omitempty"`
	// Details are the driver's own.
	Details json.RawMessage `json:"details,omitempty"`
	// Accesses is what the sandbox tried to reach, the newest last; only with --network.
	Accesses *[]access `json:"accesses,omitempty"`

	now time.Time
}

func (r *inspectResult) Text(p *output.Printer) {
	if r.Accesses != nil {
		r.networkText(p)
		return
	}
	rows := [][2]string{
		{"Name", r.Name}, {"ID", r.ID}, {"Driver", r.Driver}, {"State", strings.TrimSpace(r.State + " " + r.StateReason)},
		{"Image", r.Image}, {"Workdir", r.Workdir}, {"Network", networkWords(r.Network)},
		{"Created", output.Ago(r.CreatedAt, r.now)}, {"Expires", output.Until(r.ExpiresAt, r.now)},
	}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		rows = append(rows, [2]string{"Label", key + "=" + r.Labels[key]})
	}
	if len(r.Details) > 0 {
		rows = append(rows, [2]string{"Details", string(r.Details)})
	}
	for _, row := range rows {
		if row[1] != "" {
			p.Line("%-9s %s", row[0]+":", output.Printable(row[1]))
		}
	}
}

func networkWords(network *output.Network) string {
	if network == nil {
		return ""
	}
	return strings.TrimSpace(network.Mode + " " + strings.Join(append(slices.Clone(network.Hosts), network.CIDRs...), " "))
}

func (a *App) runInspect(ctx context.Context, query string, withNetwork bool) (output.Result, error) {
	opened, err := a.openLedger()
	if err != nil {
		return nil, err
	}
	record, err := opened.Find(ctx, query)
	if err != nil {
		return nil, err
	}
	result := &inspectResult{Requested: record.Spec, now: a.Now(), Sandbox: a.describeRecord(record, nil)}
	if record.State != ledger.StateReady {
		if withNetwork {
			return result, fmt.Errorf("the sandbox %s is not ready, so nothing is known of its network", record.Name)
		}
		return result, nil
	}
	driver, err := a.startDriver(ctx, record.Driver)
	if err != nil {
		return result, err
	}
	defer driver.Close()
	sandbox, err := driver.Inspect(ctx, refOf(record))
	if err != nil {
		return result, gone(record, err)
	}
	result.Sandbox = a.describeRecord(record, sandbox)
	if json.Valid(sandbox.Details) {
		result.Details = sandbox.Details
	}
	if withNetwork {
		err = a.addAccesses(ctx, driver, refOf(record), result)
	}
	return result, err
}
