package network

import (
	"encoding/binary"
	"net/netip"
)

// IP protocol numbers and the ICMP types that matter here.
const (
	protocolICMP   = 1
	protocolTCP    = 6
	protocolUDP    = 17
	protocolICMPv6 = 58

	echoRequest   = 8
	echoRequestV6 = 128
)

// fate is what becomes of a packet from the guest.
type fate int

const (
	// deliver hands it to the stack, which asks the policy.
	deliver fate = iota
	// ignore drops what every guest sends and nobody misses.
	ignore
	// drop drops it and says so in the log.
	drop
	// prohibit drops it, logs it with its target, and answers that it is prohibited.
	prohibit
)

// The reasons for which packets are dropped.
const (
	reasonMalformed = "a malformed packet was dropped"
	reasonSpoofed   = "a packet whose source is not the sandbox's address was dropped"
	reasonFragment  = "a fragment was dropped: fragmented packets are not carried"
	reasonOptions   = "a packet with IP options or extension headers was dropped"
	reasonProtocol  = "a packet that is neither TCP nor UDP was dropped"
	reasonPing      = "ping is not carried, only TCP and UDP are"
)

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// inspection is what the filter found.
type inspection struct {
	fate   fate
	reason string
	// to is the packet's destination, for the fate prohibit.
	to netip.Addr
}

// inspect decides on a packet by its IP header. It knows nothing of the policy: what it
// lets through is TCP and UDP, whole and with the guest's own address, and a ping of
// the gateway.
func inspect(packet []byte) inspection {
	if len(packet) == 0 {
		return inspection{fate: drop, reason: reasonMalformed}
	}
	switch packet[0] >> 4 {
	case 4:
		return inspectIPv4(packet)
	case 6:
		return inspectIPv6(packet)
	}
	return inspection{fate: drop, reason: reasonMalformed}
}

func inspectIPv4(packet []byte) inspection {
	const header = 20
	if len(packet) < header || int(binary.BigEndian.Uint16(packet[2:])) != len(packet) {
		return inspection{fate: drop, reason: reasonMalformed}
	}
	from, to := netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
	const moreFragmentsAndOffset = 0x3fff
	switch protocol := packet[9]; {
	case protocol == 2:
		// IGMP: the guest's stack joins groups.
		return inspection{fate: ignore}
	case from != GuestIPv4.Addr():
		return inspection{fate: drop, reason: reasonSpoofed}
	case packet[0]&0xf != header/4:
		return inspection{fate: drop, reason: reasonOptions}
	case binary.BigEndian.Uint16(packet[6:])&moreFragmentsAndOffset != 0:
		return inspection{fate: drop, reason: reasonFragment}
	default:
		return inspectTransport(protocol, to, packet[header:])
	}
}

func inspectIPv6(packet []byte) inspection {
	const header = 40
	if len(packet) < header || int(binary.BigEndian.Uint16(packet[4:]))+header != len(packet) {
		return inspection{fate: drop, reason: reasonMalformed}
	}
	from, to := netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40]))
	switch next := packet[6]; {
	case to.IsMulticast():
		// Neighbour and router discovery: there is nobody to discover.
		return inspection{fate: ignore}
	case from != GuestIPv6.Addr():
		return inspection{fate: drop, reason: reasonSpoofed}
	case next == 44:
		return inspection{fate: drop, reason: reasonFragment}
	case next == 0 || next == 43 || next == 60 || next == 51 || next == 135 || next == 59:
		return inspection{fate: drop, reason: reasonOptions}
	default:
		return inspectTransport(next, to, packet[header:])
	}
}

func inspectTransport(protocol byte, to netip.Addr, payload []byte) inspection {
	switch {
	case unanswerable(to):
		return inspection{fate: prohibit, reason: neverReachable(to), to: to}
	case protocol == protocolTCP, protocol == protocolUDP:
		return inspection{fate: deliver}
	case protocol != protocolICMP && protocol != protocolICMPv6:
		return inspection{fate: drop, reason: reasonProtocol}
	case len(payload) < 8 || to.Is4() != (protocol == protocolICMP):
		return inspection{fate: drop, reason: reasonMalformed}
	case to.Is4() && payload[0] != echoRequest, to.Is6() && payload[0] != echoRequestV6:
		// Mostly the guest's word that a UDP port is closed.
		return inspection{fate: ignore}
	case isGateway(to):
		return inspection{fate: deliver}
	}
	return inspection{fate: prohibit, reason: reasonPing, to: to}
}

// unanswerable says that the stack would not answer from an address, as it does to say
// that a connection is refused.
func unanswerable(to netip.Addr) bool {
	return to.IsLoopback() || to.IsUnspecified() || to.IsMulticast() || to == broadcast || to.Is4In6()
}
