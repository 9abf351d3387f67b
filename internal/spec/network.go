package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// ParseNetwork turns --network, --allow-host and --allow-cidr into a policy. The rules
// for what an allow-list may hold are those of Airflow's sandbox backends: what cannot
// be enforced exactly is not accepted.
func ParseNetwork(mode string, hosts, cidrs []string) (plugin.NetworkPolicy, error) {
	policy := plugin.NetworkPolicy{Mode: plugin.NetworkNone}
	switch {
	case mode == "allow" && len(hosts)+len(cidrs) > 0:
		// It is what inspect calls it.
		policy.Mode = plugin.NetworkAllow
	case mode != "" && mode != "none" && mode != "open":
		return plugin.NetworkPolicy{}, fmt.Errorf("--network %s: take none or open, or name what may be reached with --allow-host and --allow-cidr", mode)
	case mode == "open" && len(hosts) > 0:
		return plugin.NetworkPolicy{}, fmt.Errorf("--network open and --allow-host contradict each other; leave one out")
	case mode == "open":
		policy.Mode = plugin.NetworkOpen
	case len(hosts) > 0 || len(cidrs) > 0:
		policy.Mode = plugin.NetworkAllow
	}
	for _, host := range hosts {
		name, err := parseHost(host)
		if err != nil {
			return plugin.NetworkPolicy{}, err
		}
		policy.Hosts = append(policy.Hosts, name)
	}
	for _, cidr := range cidrs {
		prefix, err := parseCIDR(cidr)
		if err != nil {
			return plugin.NetworkPolicy{}, err
		}
		policy.CIDRs = append(policy.CIDRs, prefix.String())
	}
	slices.Sort(policy.Hosts)
	slices.Sort(policy.CIDRs)
	policy.Hosts, policy.CIDRs = slices.Compact(policy.Hosts), slices.Compact(policy.CIDRs)
	return policy, nil
}

func parseHost(text string) (string, error) {
	host := strings.TrimSuffix(strings.ToLower(text), ".")
	refuse := func(why string) error {
		return fmt.Errorf("--allow-host %q: %s; write a name such as pkg.example.net or *.example.org", text, why)
	}
	labels := strings.Split(strings.TrimPrefix(host, "*."), ".")
	switch {
	case strings.ContainsAny(host, "/:@ "):
		return "", refuse("it is not a bare host name")
	case isAddress(host):
		return "", refuse("it is an address, which --allow-cidr takes")
	case len(labels) < 2:
		return "", refuse("it is a single word")
	case len(host) > 253:
		return "", refuse("it is too long")
	}
	for _, label := range labels {
		if !isHostLabel(label) {
			return "", refuse("it is not a host name")
		}
	}
	return host, nil
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isHostLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return strings.IndexFunc(label, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}

func parseCIDR(text string) (netip.Prefix, error) {
	refuse := func(why string) error {
		return fmt.Errorf("--allow-cidr %q: %s; write a range such as 203.0.113.0/24", text, why)
	}
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, refuse("it is not an address range")
	case prefix != prefix.Masked():
		return netip.Prefix{}, refuse(fmt.Sprintf("it has bits set behind the prefix, %s has not", prefix.Masked()))
	case prefix.Bits() == 0:
		return netip.Prefix{}, refuse("it is everything, which --network open asks for")
	}
	return prefix, nil
}
