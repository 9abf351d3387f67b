package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func mustRules(t testing.TB, policy plugin.NetworkPolicy) *rules {
	t.Helper()
	parsed, err := parsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// hostOwns is a host with one public address in each family.
func hostOwns(addr netip.Addr) bool {
	return addr == netip.MustParseAddr("198.51.100.2") || addr == netip.MustParseAddr("2001:db8:100::2")
}

func TestJudge(t *testing.T) {
	openAll := plugin.NetworkPolicy{Mode: plugin.NetworkOpen}
	openPrivate := plugin.NetworkPolicy{Mode: plugin.NetworkOpen, CIDRs: []string{"10.1.0.0/16", "fd12::/16", "198.51.100.2/32"}}
	wide := plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{"0.0.0.0/0", "::/0"}}
	narrow := plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{"203.0.113.0/28", "2001:db8:200::/48", "64:ff9b::/96", "2002::/16"}}
	current, expired := answered{"pkg.example.net", true}, answered{"pkg.example.net", false}
	for _, each := range []struct {
		policy plugin.NetworkPolicy
		addr   string
		name   answered
		want   string
	}{
		{openAll, "203.0.113.1", answered{}, ""},
		{openAll, "2001:db8:200::1", answered{}, ""},
		{openAll, "64:ff9b::203.0.113.1", answered{}, ""},
		{openAll, "198.51.100.2", answered{}, reasonOwn},
		{openAll, "2001:db8:100::2", answered{}, reasonOwn},
		{openAll, "10.0.0.1", answered{}, reasonPrivate},
		{openAll, "10.0.0.1", current, reasonPrivate},
		{openAll, "172.16.0.1", answered{}, reasonPrivate},
		{openAll, "172.32.0.1", answered{}, ""},
		{openAll, "192.168.255.255", answered{}, reasonPrivate},
		{openAll, "100.64.0.1", answered{}, reasonPrivate},
		{openAll, "198.18.0.1", answered{}, reasonPrivate},
		{openAll, "192.0.0.9", answered{}, reasonPrivate},
		{openAll, "fd12::1", answered{}, reasonPrivate},
		{openAll, "fec0::1", answered{}, reasonPrivate},
		{openAll, "192.0.0.1", answered{}, reasonLink},
		{openAll, "192.0.0.2", answered{}, reasonLink},
		{openAll, GatewayIPv6.String(), answered{}, reasonLink},
		{openAll, "64:ff9b::10.0.0.1", answered{}, reasonPrivate},
		{openAll, "64:ff9b::198.51.100.2", answered{}, reasonOwn},
		{openAll, "2002:a00:1::1", answered{}, reasonPrivate},
		{openAll, "64:ff9b:1::203.0.113.1", answered{}, reasonPrivate},

		{openPrivate, "10.1.2.3", answered{}, ""},
		{openPrivate, "10.2.2.3", answered{}, reasonPrivate},
		{openPrivate, "fd12::1", answered{}, ""},
		{openPrivate, "198.51.100.2", answered{}, ""},
		{openPrivate, "64:ff9b::10.1.2.3", answered{}, ""},

		{narrow, "203.0.113.15", answered{}, ""},
		{narrow, "203.0.113.16", answered{}, reasonNoMatch},
		{narrow, "203.0.113.16", current, ""},
		{narrow, "203.0.113.16", expired, reasonExpired},
		{narrow, "10.0.0.1", current, reasonRebinding},
		{narrow, "198.51.100.2", current, reasonOwn},
		{narrow, "2001:db8:200::1", answered{}, ""},
		{narrow, "2001:db8:201::1", answered{}, reasonNoMatch},
		{narrow, "64:ff9b::203.0.113.99", answered{}, ""},
		{narrow, "64:ff9b::10.0.0.1", answered{}, reasonPrivate},
		{narrow, "64:ff9b::198.51.100.2", answered{}, reasonOwn},

		{wide, "203.0.113.1", answered{}, ""},
		{wide, "10.0.0.1", answered{}, ""},
		{wide, "198.51.100.2", answered{}, ""},
		{wide, "64:ff9b:1::203.0.113.1", answered{}, ""},
	} {
		got := mustRules(t, each.policy).judge(netip.MustParseAddr(each.addr), each.name, hostOwns)
		if got != each.want {
			t.Errorf("%s %v: %s, known as %+v: %q, want %q", each.policy.Mode, each.policy.CIDRs, each.addr, each.name, got, each.want)
		}
	}
	// What no policy opens.
	for _, addr := range []string{
		"127.0.0.1", "127.255.255.255", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
		"255.255.255.255", "168.63.129.16", "100.100.100.200", "192.0.0.192", "192.0.0.1", "192.0.0.7",
		"::", "::1", "::127.0.0.1", "::203.0.113.1", "::ffff:127.0.0.1", "::ffff:203.0.113.1", "fe80::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254",
		"64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::169.254.169.254", "64:ff9b:1:7f00:0:100::", "64:ff9b:1:1a9:fe:a9fe::",
		"2002:7f00:1::1", "2002:a9fe:a9fe::1", "2001:0:7f00:1::1", "2001:0:cb00:7101::5601:5601", GuestIPv6.Addr().String(),
	} {
		for _, policy := range []plugin.NetworkPolicy{openAll, wide} {
			if got := mustRules(t, policy).judge(netip.MustParseAddr(addr), current, hostOwns); got == "" {
				t.Errorf("%s: %s can be reached", policy.Mode, addr)
			}
		}
	}
}

// FuzzJudge holds the rules against what the standard library says of addresses.
func FuzzJudge(f *testing.F) {
	for _, each := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.1", "203.0.113.1", "::1", "fe80::1", "64:ff9b::7f00:1", "2002:7f00:1::"} {
		f.Add(netip.MustParseAddr(each).AsSlice())
	}
	openAll := mustRules(f, plugin.NetworkPolicy{Mode: plugin.NetworkOpen})
	wide := mustRules(f, plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{"0.0.0.0/0", "::/0"}})
	closed := mustRules(f, plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"pkg.example.net"}})
	nobody := func(netip.Addr) bool { return false }
	f.Fuzz(func(t *testing.T, raw []byte) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		plain := addr.Unmap()
		never := plain.IsLoopback() || plain.IsUnspecified() || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain == broadcast
		for _, each := range []*rules{openAll, wide} {
			if never && each.judge(addr, answered{}, nobody) == "" {
				t.Errorf("%s can be reached", addr)
			}
		}
		if plain.IsPrivate() && openAll.judge(addr, answered{"a.example", true}, nobody) == "" {
			t.Errorf("%s can be reached without a CIDR", addr)
		}
		if closed.judge(addr, answered{}, nobody) == "" {
			t.Errorf("%s can be reached although nothing allows it", addr)
		}
	})
}

func TestNames(t *testing.T) {
	parsed := mustRules(t, plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"pkg.example.net", "*.Example.org"}})
	for name, want := range map[string]bool{
		"pkg.example.net": true, "PKG.EXAMPLE.NET.": true, "a.pkg.example.net": false, "xpkg.example.net": false, "example.net": false,
		"example.org": false, ".example.org": false, "a.example.org": true, "a.b.example.org.": true, "aexample.org": false,
		"a.example.org.evil.net": false, "": false, ".": false, "*.example.org": true,
	} {
		if got := parsed.allowsName(canonicalName(name)); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestCheckPolicy(t *testing.T) {
	allowed := func(cidrs ...string) plugin.NetworkPolicy {
		return plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: cidrs}
	}
	for _, each := range []struct {
		policy plugin.NetworkPolicy
		want   string
	}{
		{plugin.NetworkPolicy{Mode: plugin.NetworkOpen}, ""},
		{plugin.NetworkPolicy{Mode: plugin.NetworkOpen, CIDRs: []string{"10.0.0.0/8"}}, ""},
		{plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"pkg.example.net", "*.example.org"}}, ""},
		{allowed("0.0.0.0/0", "100.64.0.0/10", "2001:db8::/32"), ""},
		{plugin.NetworkPolicy{Mode: plugin.NetworkNone}, "mode"},
		{plugin.NetworkPolicy{}, "mode"},
		{allowed("127.0.0.0/8"), "loopback"},
		{allowed("203.0.113.0/24", "127.0.0.1/32"), "loopback"},
		{allowed("169.254.0.0/16"), "link-local"},
		{allowed("169.254.169.254/32"), "metadata"},
		{allowed("100.100.100.200/32"), "metadata"},
		{allowed("224.0.0.0/24"), "multicast"},
		{allowed("255.255.255.255/32"), "reserved"},
		{allowed("fe80::/64"), "link-local"},
		{allowed("::1/128"), "loopback"},
		{allowed("::ffff:10.0.0.0/104"), "IPv4"},
		{allowed("192.0.0.0/30"), "own link"},
		{allowed("10.0.0.1"), "not an address range"},
		{plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"a.*.example.net"}}, "host name"},
		{plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"*"}}, "host name"},
	} {
		err := CheckPolicy(each.policy)
		switch {
		case each.want == "" && err != nil:
			t.Errorf("%+v: %v", each.policy, err)
		case each.want != "" && (plugin.KindOf(err) != plugin.KindRefused || !strings.Contains(err.Error(), each.want)):
			t.Errorf("%+v: %v, want %q", each.policy, err, each.want)
		}
	}
}
