package network

import "net/netip"

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
	thisNet    = netip.MustParsePrefix("0.0.0.0/8")
)

// embedded returns the IPv4 addresses that a gateway may take an IPv6 address for: a
// way to such an address is a way to them.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case nat64.Contains(addr):
		return []netip.Addr{last}
	case localNAT64.Contains(addr):
		return localTranslations(b)
	case sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(addr):
		server := netip.AddrFrom4([4]byte(b[4:8]))
		client := netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
		return []netip.Addr{server, client}
	}
	return nil
}

// localTranslations reads the address in each of the ways of RFC 6052, since how long
// the site's prefix is cannot be seen. Readings that give no address are left out.
func localTranslations(b [16]byte) []netip.Addr {
	var found []netip.Addr
	for _, each := range [][4]byte{
		{b[6], b[7], b[9], b[10]},
		{b[7], b[9], b[10], b[11]},
		{b[9], b[10], b[11], b[12]},
		{b[12], b[13], b[14], b[15]},
	} {
		if addr := netip.AddrFrom4(each); !thisNet.Contains(addr) {
			found = append(found, addr)
		}
	}
	return found
}
