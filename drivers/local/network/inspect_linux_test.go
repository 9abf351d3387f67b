package network

import (
	"net/netip"
	"testing"
)

func TestInspect(t *testing.T) {
	v4, v6 := netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:200::10")
	payload := make([]byte, 20)
	ping4, ping6 := []byte{echoRequest, 0, 0, 0, 0, 0, 0, 0}, []byte{echoRequestV6, 0, 0, 0, 0, 0, 0, 0}
	// with returns the packet with one byte changed.
	with := func(packet []byte, at int, value byte) []byte {
		packet[at] = value
		return packet
	}
	for name, each := range map[string]struct {
		packet []byte
		fate   fate
		reason string
	}{
		"TCP":                      {ipPacket(v4, protocolTCP, payload), deliver, ""},
		"TCP over IPv6":            {ipPacket(v6, protocolTCP, payload), deliver, ""},
		"UDP":                      {ipPacket(v4, protocolUDP, payload), deliver, ""},
		"UDP over IPv6":            {ipPacket(v6, protocolUDP, payload), deliver, ""},
		"don't fragment":           {with(ipPacket(v4, protocolTCP, payload), 6, 0x40), deliver, ""},
		"ping of the gateway":      {ipPacket(GatewayIPv4, protocolICMP, ping4), deliver, ""},
		"ping of the gateway, v6":  {ipPacket(GatewayIPv6, protocolICMPv6, ping6), deliver, ""},
		"nothing":                  {nil, drop, reasonMalformed},
		"version 5":                {with(ipPacket(v4, protocolTCP, payload), 0, 0x55), drop, reasonMalformed},
		"short header":             {ipPacket(v4, protocolTCP, nil)[:19], drop, reasonMalformed},
		"short header, v6":         {ipPacket(v6, protocolTCP, nil)[:39], drop, reasonMalformed},
		"cut":                      {ipPacket(v4, protocolTCP, payload)[:39], drop, reasonMalformed},
		"cut, v6":                  {ipPacket(v6, protocolTCP, payload)[:59], drop, reasonMalformed},
		"more than its length":     {append(ipPacket(v4, protocolTCP, payload), 0), drop, reasonMalformed},
		"more than its length, v6": {append(ipPacket(v6, protocolTCP, payload), 0), drop, reasonMalformed},
		"spoofed":                  {with(ipPacket(v4, protocolTCP, payload), 15, 3), drop, reasonSpoofed},
		"spoofed, v6":              {with(ipPacket(v6, protocolTCP, payload), 23, 3), drop, reasonSpoofed},
		"options":                  {with(ipPacket(v4, protocolTCP, payload), 0, 0x46), drop, reasonOptions},
		"hop by hop":               {ipPacket(v6, 0, payload), drop, reasonOptions},
		"routing header":           {ipPacket(v6, 43, payload), drop, reasonOptions},
		"first fragment":           {with(ipPacket(v4, protocolUDP, payload), 6, 0x20), drop, reasonFragment},
		"last fragment":            {with(ipPacket(v4, protocolUDP, payload), 7, 1), drop, reasonFragment},
		"fragment, v6":             {ipPacket(v6, 44, payload), drop, reasonFragment},
		"SCTP":                     {ipPacket(v4, 132, payload), drop, reasonProtocol},
		"IP in IP, v6":             {ipPacket(v6, 41, payload), drop, reasonProtocol},
		"ICMP of the other family": {ipPacket(v6, protocolICMP, ping4), drop, reasonMalformed},
		"short ping":               {ipPacket(v4, protocolICMP, ping4[:7]), drop, reasonMalformed},
		"ping":                     {ipPacket(v4, protocolICMP, ping4), prohibit, reasonPing},
		"ping, v6":                 {ipPacket(v6, protocolICMPv6, ping6), prohibit, reasonPing},
		"loopback":                 {ipPacket(netip.MustParseAddr("127.0.0.1"), protocolTCP, payload), prohibit, ""},
		"loopback, v6":             {ipPacket(netip.MustParseAddr("::1"), protocolTCP, payload), prohibit, ""},
		"mapped":                   {ipPacket(netip.MustParseAddr("::ffff:203.0.113.10"), protocolTCP, payload), prohibit, ""},
		"broadcast":                {ipPacket(broadcast, protocolUDP, payload), prohibit, ""},
		"multicast":                {ipPacket(netip.MustParseAddr("224.0.0.251"), protocolUDP, payload), prohibit, ""},
		"IGMP":                     {ipPacket(netip.MustParseAddr("224.0.0.22"), 2, payload), ignore, ""},
		"router solicitation":      {ipPacket(netip.MustParseAddr("ff02::2"), protocolICMPv6, with(payload, 0, 133)), ignore, ""},
		"port unreachable":         {ipPacket(GatewayIPv4, protocolICMP, []byte{3, 3, 0, 0, 0, 0, 0, 0}), ignore, ""},
	} {
		got := inspect(each.packet)
		if got.fate != each.fate || each.reason != "" && got.reason != each.reason {
			t.Errorf("%s: %+v, want %d %q", name, got, each.fate, each.reason)
		}
	}
}
