package cli

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// access stands for attempts of a sandbox to reach something that went alike.
type access struct {
	// Verdict is allowed, refused by the policy, or failed although it was allowed.
	Verdict  string `json:"verdict"`
	Protocol string `json:"protocol"`
	// Host is the name that was looked up, or whose answer gave the address.
	Host    string    `json:"host,omitempty"`
	Address string    `json:"address,omitempty"`
	Port    int       `json:"port,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Count   uint64    `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// addAccesses reads the log of a sandbox's network.
func (a *App) addAccesses(ctx context.Context, driver *host.Driver, ref plugin.Ref, result *inspectResult) error {
	if !driver.Info.Capabilities.Network.AccessLog {
		refused := plugin.Refusedf("--network", "driver %s does not record what its sandboxes try to reach", driver.Info.Name).
			WithHint("inspect without --network shows the sandbox's policy")
		return fromDriver(driver.Info.Name, refused)
	}
	log, err := driver.AccessLog(ctx, ref)
	if err != nil {
		return fromDriver(driver.Info.Name, err)
	}
	accesses := make([]access, 0, len(log))
	for _, each := range log {
		accesses = append(accesses, access{
			Verdict: string(each.Verdict), Protocol: each.Protocol, Host: each.Host, Address: each.Address, Port: int(each.Port),
			Reason: each.Reason, Count: each.Count, First: each.First.UTC(), Last: each.Last.UTC(),
		})
	}
	result.Accesses = &accesses
	return nil
}

// target is what an access was for: a name, an address, or both.
func (a access) target() string {
	address := a.Address
	if address != "" && a.Port != 0 {
		address = net.JoinHostPort(address, strconv.Itoa(a.Port))
	}
	switch {
	case a.Host == "":
		return address
	case address == "":
		return a.Host
	}
	return a.Host + " (" + address + ")"
}

func (r *inspectResult) networkText(p *output.Printer) {
	p.Line("Network:  %s", output.Printable(networkWords(r.Network)))
	if len(*r.Accesses) == 0 {
		p.Line("The sandbox has not tried to reach anything.")
		return
	}
	var rows [][]string
	for _, each := range *r.Accesses {
		rows = append(rows, []string{
			each.Verdict, each.Protocol, each.target(),
			strconv.FormatUint(each.Count, 10), output.Ago(each.Last, r.now), each.Reason,
		})
	}
	p.Table([]string{"VERDICT", "PROTO", "TARGET", "TIMES", "LAST", "REASON"}, rows)
}
