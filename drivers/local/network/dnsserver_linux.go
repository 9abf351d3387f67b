package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

const (
	dnsPort = 53
	// maxQueries and maxDNSStreams bound what is answered at the same time. A guest
	// that asks more asks again.
	maxQueries    = 64
	maxDNSStreams = 16
	// dnsStreamIdle is how long a client may keep a connection without asking.
	dnsStreamIdle = 10 * time.Second
)

// serveDNS answers at the gateway's addresses.
func (n *Network) serveDNS() error {
	queries, streams := &limit{most: maxQueries}, &limit{most: maxDNSStreams}
	for _, addr := range []netip.Addr{GatewayIPv4, GatewayIPv6} {
		at := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(addr.AsSlice()), Port: dnsPort}
		packets, err := gonet.DialUDP(n.stack, &at, nil, protocolOf(addr))
		if err != nil {
			return fmt.Errorf("nameserver: %w", err)
		}
		listener, err := gonet.ListenTCP(n.stack, at, protocolOf(addr))
		if err != nil {
			return fmt.Errorf("nameserver: %w", err)
		}
		n.spawn(func() { n.serveQueries(packets, queries) })
		n.spawn(func() { n.serveStreams(listener, streams) })
	}
	return nil
}

func (n *Network) serveQueries(packets *gonet.UDPConn, queries *limit) {
	stop := context.AfterFunc(n.ctx, func() { _ = packets.SetDeadline(time.Unix(0, 0)) })
	defer stop()
	defer packets.Close()
	buf := make([]byte, maxDNSSize)
	for {
		size, from, err := packets.ReadFrom(buf)
		if err != nil {
			return
		}
		if !queries.acquire() {
			continue
		}
		message := append([]byte(nil), buf[:size]...)
		started := n.spawn(func() {
			defer queries.release()
			if reply := n.dns.answer(n.ctx, message, false); reply != nil {
				_, _ = packets.WriteTo(reply, from)
			}
		})
		if !started {
			return
		}
	}
}

func (n *Network) serveStreams(listener *gonet.TCPListener, streams *limit) {
	stop := context.AfterFunc(n.ctx, listener.Shutdown)
	defer stop()
	defer listener.Close()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if !streams.acquire() {
			_ = conn.Close()
			continue
		}
		if !n.spawn(func() { defer streams.release(); n.serveStream(conn) }) {
			_ = conn.Close()
			return
		}
	}
}

func (n *Network) serveStream(conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(n.ctx, func() { _ = conn.Close() })
	defer stop()
	for {
		_ = conn.SetDeadline(time.Now().Add(dnsStreamIdle))
		message, err := readStream(conn)
		if err != nil {
			return
		}
		reply := n.dns.answer(n.ctx, message, true)
		if reply == nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(dnsStreamIdle))
		if writeStream(conn, reply) != nil {
			return
		}
	}
}
