package opensandbox

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// networkPolicy is the server's and the sidecar's form of a policy.
type networkPolicy struct {
	DefaultAction string        `json:"defaultAction"`
	Egress        []networkRule `json:"egress"`
}

type networkRule struct {
	Action string `json:"action"`
	Target string `json:"target"`
}

// policyStatus is what a sidecar says it enforces.
type policyStatus struct {
	EnforcementMode string        `json:"enforcementMode"`
	Policy          networkPolicy `json:"policy"`
}

// enforcesAddresses is the enforcement mode that blocks connections; the other one only refuses to resolve names.
const enforcesAddresses = "dns+nft"

// policyFor is what create sends; nil for an open network, for which even an allowing policy would need a sidecar.
func policyFor(network plugin.NetworkPolicy) *networkPolicy {
	if network.Mode == plugin.NetworkOpen {
		return nil
	}
	// The default is spelt out: what an empty policy means differs between the documentation and the server.
	p := &networkPolicy{DefaultAction: "deny", Egress: []networkRule{}}
	for _, target := range slices.Concat(network.Hosts, network.CIDRs) {
		p.Egress = append(p.Egress, networkRule{Action: "allow", Target: target})
	}
	return p
}

// networkOf is the policy in force as sandboxctl puts it. A policy that it never sends is shown as open rather than
// as something narrower than it is.
func networkOf(p networkPolicy) plugin.NetworkPolicy {
	if p.DefaultAction != "deny" {
		return plugin.NetworkPolicy{Mode: plugin.NetworkOpen}
	}
	out := plugin.NetworkPolicy{Mode: plugin.NetworkNone}
	for _, rule := range p.Egress {
		if rule.Action != "allow" {
			continue
		}
		out.Mode = plugin.NetworkAllow
		if isAddress(rule.Target) {
			out.CIDRs = append(out.CIDRs, rule.Target)
		} else {
			out.Hosts = append(out.Hosts, rule.Target)
		}
	}
	return out
}

func isAddress(target string) bool {
	if _, err := netip.ParsePrefix(target); err == nil {
		return true
	}
	_, err := netip.ParseAddr(target)
	return err == nil
}

// policy asks a sandbox's sidecar what it enforces. On Docker the way to it leads through execd's own proxy, which
// wants its token, too.
func (d *Driver) policy(ctx context.Context, box boxRef) (*policyStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	e, err := d.server.endpoint(ctx, box.ID, egressPort)
	if err != nil {
		return nil, err
	}
	token, err := d.secret.token(box.sandboxctlID)
	if err != nil {
		return nil, err
	}
	e.header.Set(execdTokenHeader, token)
	var out policyStatus
	if _, err := d.server.do(ctx, e.call(http.MethodGet, "read back the network policy", "policy"), &out); err != nil {
		if answerOf(err) == nil {
			err = e.unreachable(err)
		}
		return nil, err
	}
	return &out, nil
}

// verifyNetwork reads the policy back: a server without a sidecar, or one that changes policies, must not pass for
// isolation. The caller destroys the sandbox on an error.
func (d *Driver) verifyNetwork(ctx context.Context, box boxRef, wanted *networkPolicy, namesOnly bool) error {
	if wanted == nil {
		return nil
	}
	status, err := d.policy(ctx, box)
	if err != nil {
		if a := answerOf(err); a != nil {
			return plugin.Errorf(plugin.KindRefused, "the sandbox was created without the network policy that was asked for: its egress sidecar does not answer: %w", err).
				WithHint("configure [egress] on the server, or use --network open")
		}
		return plugin.Errorf(plugin.KindRefused, "the network policy in force cannot be read back: %w", err).
			WithHint("use drivers.opensandbox.use_server_proxy if the sandbox's address is not reachable from here")
	}
	if difference := differs(*wanted, status.Policy); difference != "" {
		return plugin.Errorf(plugin.KindRefused, "the network policy in force is not the one that was asked for: %s", difference)
	}
	return checkEnforcement(status.EnforcementMode, *wanted, namesOnly)
}

// differs compares policies as sets and says what is not the same.
func differs(wanted, got networkPolicy) string {
	if got.DefaultAction != wanted.DefaultAction {
		return "the default action is " + quoteOrNone(got.DefaultAction) + " instead of " + wanted.DefaultAction
	}
	for _, rule := range got.Egress {
		if !slices.Contains(wanted.Egress, rule) {
			return rule.Action + " " + rule.Target + " was added"
		}
	}
	for _, rule := range wanted.Egress {
		if !slices.Contains(got.Egress, rule) {
			return rule.Action + " " + rule.Target + " is missing"
		}
	}
	return ""
}

func quoteOrNone(s string) string {
	if s == "" {
		return "absent"
	}
	return s
}

// checkEnforcement refuses what a server that filters only names cannot keep.
func checkEnforcement(mode string, wanted networkPolicy, namesOnly bool) error {
	if mode == enforcesAddresses {
		return nil
	}
	hasCIDR := slices.ContainsFunc(wanted.Egress, func(r networkRule) bool { return isAddress(r.Target) })
	option := "--network"
	if len(wanted.Egress) > 0 {
		option = "--allow-host"
	}
	switch {
	case hasCIDR:
		return plugin.Refusedf("--allow-cidr", "the server enforces egress by %q, which does nothing about addresses", mode).
			WithHint(`set [egress] mode = "dns+nft" in the server's configuration`)
	case namesOnly:
		return nil
	}
	return plugin.Refusedf(option, "the server enforces egress by %q: names are refused, but connections to literal addresses are not blocked", mode).
		WithHint(`set [egress] mode = "dns+nft" in the server's configuration, accept it with --opt %s=true, or use --network open`, optionNamesOnly)
}

// checkTargets refuses what the sidecar would accept without understanding it.
func checkTargets(network plugin.NetworkPolicy) error {
	if network.Mode == plugin.NetworkAllow && len(network.Hosts)+len(network.CIDRs) == 0 {
		return plugin.Errorf(plugin.KindInvalid, "an allow-list without entries was asked for").WithHint("use --network none")
	}
	for _, host := range network.Hosts {
		name := strings.TrimPrefix(host, "*.")
		if isAddress(host) || strings.ContainsAny(name, "*:/ @") || !strings.Contains(name, ".") {
			return plugin.Refusedf("--allow-host", "%q is not a host name that OpenSandbox can allow", host).
				WithHint("give a full name like pkg.example.net or *.example.com, without scheme and port")
		}
	}
	for _, cidr := range network.CIDRs {
		if !isAddress(cidr) {
			return plugin.Refusedf("--allow-cidr", "%q is not an address range", cidr)
		}
	}
	return nil
}
