package network

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// The reasons for which a connection is refused, as the access log gives them.
const (
	reasonNoMatch   = "no --allow-host or --allow-cidr matches"
	reasonExpired   = "the DNS answer that gave the address has expired; the name has to be resolved again"
	reasonPrivate   = "the address is in a private range; allow it with --allow-cidr"
	reasonRebinding = "an allowed name gave this address, but it is in a private range; allow it with --allow-cidr"
	reasonOwn       = "the address is one of this host's own; allow it with --allow-cidr"
	reasonLink      = "the address belongs to the sandbox's own link, where only DNS answers"
)

// rules is a policy that can be asked.
type rules struct {
	open  bool
	hosts []string
	cidrs []netip.Prefix
}

// CheckPolicy says whether a sandbox's network can be made of a policy. It refuses
// what could never be granted, before anything is made.
func CheckPolicy(policy plugin.NetworkPolicy) error {
	parsed, err := parsePolicy(policy)
	if err != nil {
		return err
	}
	for _, cidr := range parsed.cidrs {
		for _, each := range unreachable {
			if each.Contains(cidr.Addr()) && each.Bits() <= cidr.Bits() {
				return plugin.Refusedf("--allow-cidr", "%s cannot be allowed: it lies in %s, %s", cidr, each.Prefix, each.what).
					WithHint("leave this range out")
			}
		}
	}
	return nil
}

func parsePolicy(policy plugin.NetworkPolicy) (*rules, error) {
	parsed := &rules{open: policy.Mode == plugin.NetworkOpen}
	if !parsed.open && policy.Mode != plugin.NetworkAllow {
		return nil, plugin.Refusedf("--network", "a network of mode %q cannot be made", policy.Mode)
	}
	for _, host := range policy.Hosts {
		host = canonicalName(host)
		if !isHostName(strings.TrimPrefix(host, "*.")) {
			return nil, plugin.Refusedf("--allow-host", "%q is not a host name with at most one leading *.", host)
		}
		parsed.hosts = append(parsed.hosts, host)
	}
	for _, cidr := range policy.CIDRs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, plugin.Refusedf("--allow-cidr", "%q is not an address range", cidr)
		}
		parsed.cidrs = append(parsed.cidrs, prefix.Masked())
	}
	return parsed, nil
}

// answered is what DNS has told the guest of an address.
type answered struct {
	// host is the name whose answer gave the address, or empty.
	host string
	// current says that the answer has not expired.
	current bool
}

// judge returns why an address may not be reached, or nothing when it may. own says
// which addresses are this host's.
func (r *rules) judge(addr netip.Addr, name answered, own func(netip.Addr) bool) string {
	ways := append(embedded(addr), addr)
	for _, each := range ways {
		if what := neverReachable(each); what != "" {
			return what
		}
		switch {
		case !isPrivate(each) || r.inCIDR(each):
		case name.host != "" && !r.open:
			return reasonRebinding
		default:
			return reasonPrivate
		}
	}
	if !r.open && !r.inCIDR(addr) && !name.current {
		if name.host != "" {
			return reasonExpired
		}
		return reasonNoMatch
	}
	for _, each := range ways {
		// This comes last because it asks the kernel.
		if !r.inCIDR(each) && own(each) {
			return reasonOwn
		}
	}
	return ""
}

func (r *rules) inCIDR(addr netip.Addr) bool {
	for _, cidr := range r.cidrs {
		if cidr.Contains(addr) {
			return true
		}
	}
	return false
}

// namesIPv6 says whether a CIDR names IPv6 addresses.
func (r *rules) namesIPv6() bool {
	for _, cidr := range r.cidrs {
		if cidr.Addr().Is6() {
			return true
		}
	}
	return false
}

// allowsName says whether a name, in canonical form, may be resolved.
func (r *rules) allowsName(name string) bool {
	if r.open {
		return true
	}
	for _, pattern := range r.hosts {
		if below, wild := strings.CutPrefix(pattern, "*"); wild {
			if len(name) > len(below) && strings.HasSuffix(name, below) {
				return true
			}
		} else if name == pattern {
			return true
		}
	}
	return false
}

// block is a range of addresses with what it is.
type block struct {
	netip.Prefix
	what string
}

func blocks(what string, prefixes ...string) []block {
	var made []block
	for _, each := range prefixes {
		made = append(made, block{netip.MustParsePrefix(each), what})
	}
	return made
}

func concat(lists ...[]block) []block {
	var all []block
	for _, each := range lists {
		all = append(all, each...)
	}
	return all
}

// unreachable is what no policy opens. The first block that matches gives the reason.
var unreachable = concat(
	blocks("loopback addresses", "127.0.0.0/8", "::1/128"),
	blocks("unspecified addresses", "0.0.0.0/8", "::/128"),
	// Where clouds serve credentials to their machines outside the link-local range.
	blocks("a metadata service of a cloud", "169.254.169.254/32", "168.63.129.16/32", "100.100.100.200/32",
		"192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128"),
	blocks("link-local addresses", "169.254.0.0/16", "fe80::/10"),
	blocks("multicast addresses", "224.0.0.0/4", "ff00::/8"),
	blocks("reserved addresses", "240.0.0.0/4"),
	blocks("IPv4 addresses written as IPv6", "::ffff:0:0/96", "::/96"),
	blocks("the sandbox's own link", GuestIPv4.Masked().String(), GuestIPv6.Masked().String()),
)

// private is what only a CIDR opens.
var private = concat(
	blocks("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
	blocks("shared by a provider's customers", "100.64.0.0/10"),
	blocks("special purpose", "192.0.0.0/24", "198.18.0.0/15"),
	// A site's own way to IPv4 (RFC 8215).
	blocks("local translation", "64:ff9b:1::/48"),
)

func neverReachable(addr netip.Addr) string {
	for _, each := range unreachable {
		if each.Contains(addr) {
			if isLink(each.Prefix) {
				return reasonLink
			}
			return fmt.Sprintf("%s lies in %s, %s, which no sandbox can reach", addr, each.Prefix, each.what)
		}
	}
	return ""
}

func isLink(prefix netip.Prefix) bool {
	return prefix == GuestIPv4.Masked() || prefix == GuestIPv6.Masked()
}

func isPrivate(addr netip.Addr) bool {
	for _, each := range private {
		if each.Contains(addr) {
			return true
		}
	}
	return false
}
