// Package network is the outside end of a sandbox's network: a TCP/IP stack of its own
// that takes the guest's packets from one end of a socket pair, judges where they want
// to go, and carries what is allowed over ordinary sockets of this process. It needs no
// privilege, no namespace and no device, and there is no way around it: the guest's
// only link ends here.
package network

import "net/netip"

// MTU is the size of the largest packet on the link, in bytes.
const MTU = 65520

// The addresses of the link. 192.0.0.0/29 is set aside for the two ends of such a link
// (RFC 7335) and is never routed, so it hides nobody's network; the IPv6 prefix is a
// random unique local one. The gateway is also the guest's nameserver.
var (
	GuestIPv4   = netip.MustParsePrefix("192.0.0.2/29")
	GatewayIPv4 = netip.MustParseAddr("192.0.0.1")
	GuestIPv6   = netip.MustParsePrefix("fd8e:36c4:5b1a::2/64")
	GatewayIPv6 = netip.MustParseAddr("fd8e:36c4:5b1a::1")
)

func isGateway(addr netip.Addr) bool { return addr == GatewayIPv4 || addr == GatewayIPv6 }

func isGuest(addr netip.Addr) bool {
	return addr == GuestIPv4.Addr() || addr == GuestIPv6.Addr()
}
