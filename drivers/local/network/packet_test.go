package network

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

// FuzzInspect checks that nothing reaches the stack but whole TCP and UDP packets of
// the guest, and pings of the gateway.
func FuzzInspect(f *testing.F) {
	v4 := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 0, 2, 203, 0, 113, 1, 1, 2, 3, 4, 0, 8, 0, 0}
	f.Add(v4)
	ping := bytes.Clone(v4)
	ping[9] = protocolICMP
	ping[20] = echoRequest
	f.Add(ping)
	v6 := append([]byte{0x60, 0, 0, 0, 0, 8, 17, 64}, GuestIPv6.Addr().AsSlice()...)
	v6 = append(append(v6, netip.MustParseAddr("2001:db8::1").AsSlice()...), 1, 2, 3, 4, 0, 8, 0, 0)
	f.Add(v6)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, packet []byte) {
		found := inspect(packet)
		if found.fate == drop && found.reason == "" || found.fate == prohibit && (found.reason == "" || !found.to.IsValid()) {
			t.Errorf("no reason for %x: %+v", packet, found)
		}
		if found.fate == prohibit {
			if reply := prohibited(packet); len(reply) > 1280 || !isToGuest(reply) {
				t.Errorf("%x is answered with %x", packet, reply)
			}
		}
		if found.fate != deliver {
			return
		}
		protocol, from := byte(0), netip.Addr{}
		if packet[0]>>4 == 4 {
			protocol, from = packet[9], netip.AddrFrom4([4]byte(packet[12:16]))
			if packet[0] != 0x45 || binary.BigEndian.Uint16(packet[6:])&0x3fff != 0 {
				t.Errorf("options or a fragment: %x", packet)
			}
		} else {
			protocol, from = packet[6], netip.AddrFrom16([16]byte(packet[8:24]))
		}
		if !isGuest(from) {
			t.Errorf("a foreign source: %x", packet)
		}
		if protocol != protocolTCP && protocol != protocolUDP && protocol != protocolICMP && protocol != protocolICMPv6 {
			t.Errorf("protocol %d: %x", protocol, packet)
		}
	})
}

func isToGuest(packet []byte) bool {
	if packet[0]>>4 == 4 {
		return bytes.Equal(packet[16:20], GuestIPv4.Addr().AsSlice())
	}
	return bytes.Equal(packet[24:40], GuestIPv6.Addr().AsSlice())
}
