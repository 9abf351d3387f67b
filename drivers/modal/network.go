package modal

import (
	"net/netip"
	"strings"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	hostMatchOption = "host-match"
	hostMatchSNI    = "sni"
	// maxHosts is how many domains Modal takes.
	maxHosts = 100
)

// applyNetwork sets the policy, or refuses what Modal would not enforce as
// asked. Modal's clients check none of this.
func (d *Driver) applyNetwork(params *modalsdk.SandboxCreateParams, spec *plugin.SandboxSpec) error {
	option := spec.Options[hostMatchOption]
	if option != "" && option != hostMatchSNI {
		return plugin.Refusedf("--opt "+hostMatchOption, "the modal driver knows %s=%s and no other value", hostMatchOption, hostMatchSNI)
	}
	policy := spec.Network
	if policy.Mode != plugin.NetworkAllow && len(policy.Hosts)+len(policy.CIDRs) > 0 {
		return plugin.Refusedf("--network", "Modal cannot combine the network mode %q with a list of what is allowed", policy.Mode)
	}
	switch policy.Mode {
	case plugin.NetworkOpen:
		return nil
	case plugin.NetworkNone:
		params.BlockNetwork = true
		return nil
	case plugin.NetworkAllow:
	default:
		return plugin.Refusedf("--network", "Modal has no network mode %q", policy.Mode)
	}
	if len(policy.Hosts) > 0 && len(policy.CIDRs) > 0 {
		return plugin.Refusedf("--allow-cidr", "Modal cannot enforce hosts and CIDRs together: with any host in the list it lets every address through on port 443").
			WithHint("use --allow-host or --allow-cidr, not both")
	}
	if len(policy.Hosts) > 0 {
		if err := d.checkHosts(policy.Hosts, option == hostMatchSNI); err != nil {
			return err
		}
		params.OutboundDomainAllowlist = &modalsdk.Allowlist{Entries: policy.Hosts}
		return nil
	}
	if err := checkCIDRs(policy.CIDRs); err != nil {
		return err
	}
	// An empty list allows nothing, which is what an empty policy asks for.
	params.OutboundCIDRAllowlist = &modalsdk.Allowlist{Entries: policy.CIDRs}
	return nil
}

func (d *Driver) checkHosts(hosts []string, accepted bool) error {
	if !accepted && d.settings.HostMatch != hostMatchSNI {
		return plugin.Refusedf("--allow-host", "Modal enforces --allow-host only by the name in TLS handshakes on port 443; DNS stays open and hosts behind the same TLS endpoint can be reached").
			WithHint("accept that with --opt %s=%s, or use --allow-cidr, which Modal enforces exactly", hostMatchOption, hostMatchSNI)
	}
	if len(hosts) > maxHosts {
		return plugin.Refusedf("--allow-host", "Modal takes at most %d hosts, and %d were given", maxHosts, len(hosts))
	}
	for _, host := range hosts {
		if reason := hostProblem(host); reason != "" {
			return plugin.Refusedf("--allow-host", "Modal cannot allow the host %q: %s", host, reason)
		}
	}
	return nil
}

// hostProblem says why Modal would refuse or misread a host, or nothing.
func hostProblem(host string) string {
	name := strings.TrimPrefix(host, "*.")
	switch {
	case strings.Contains(name, "*"):
		return "a wildcard can only be the first label"
	case !strings.Contains(name, "."):
		return "it is not a fully qualified name"
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return "it is a loopback name"
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return "it is an address; use --allow-cidr"
	}
	return ""
}

func checkCIDRs(cidrs []string) error {
	for _, entry := range cidrs {
		prefix, err := netip.ParsePrefix(entry)
		if err != nil {
			return plugin.Refusedf("--allow-cidr", "%q is not an address range", entry)
		}
		if !prefix.Addr().Is4() {
			return plugin.Refusedf("--allow-cidr", "Modal allows IPv4 ranges only, and %s is not one", entry)
		}
		if prefix.Bits() == 0 {
			return plugin.Refusedf("--allow-cidr", "%s is every address; use --network open if that is meant", entry)
		}
	}
	return nil
}
