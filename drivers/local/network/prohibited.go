package network

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// prohibited returns the packet that tells a sender that the way to its packet's
// destination is closed by an administrator. It comes from the gateway.
func prohibited(packet []byte) []byte {
	if packet[0]>>4 == 4 {
		return prohibitedIPv4(packet)
	}
	return prohibitedIPv6(packet)
}

func prohibitedIPv4(packet []byte) []byte {
	quoted := packet[:min(len(packet), header.IPv4MinimumSize+8)]
	reply := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize+len(quoted))
	ip := header.IPv4(reply)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(reply)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: tcpip.AddrFrom4(GatewayIPv4.As4()), DstAddr: tcpip.AddrFrom4(GuestIPv4.Addr().As4()),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(reply[header.IPv4MinimumSize:])
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(header.ICMPv4AdminProhibited)
	copy(icmp[header.ICMPv4MinimumSize:], quoted)
	icmp.SetChecksum(^checksum.Checksum(icmp, 0))
	return reply
}

func prohibitedIPv6(packet []byte) []byte {
	quoted := packet[:min(len(packet), header.IPv6MinimumMTU-header.IPv6MinimumSize-header.ICMPv6DstUnreachableMinimumSize)]
	reply := make([]byte, header.IPv6MinimumSize+header.ICMPv6DstUnreachableMinimumSize+len(quoted))
	from, to := tcpip.AddrFrom16(GatewayIPv6.As16()), tcpip.AddrFrom16(GuestIPv6.Addr().As16())
	header.IPv6(reply).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(reply) - header.IPv6MinimumSize), TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit: 255, SrcAddr: from, DstAddr: to,
	})
	icmp := header.ICMPv6(reply[header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(header.ICMPv6Prohibited)
	copy(icmp[header.ICMPv6DstUnreachableMinimumSize:], quoted)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: from, Dst: to}))
	return reply
}
