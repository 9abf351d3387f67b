package testnet

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
)

// ListenTCP serves connections at an address and port of the internet, which becomes
// reachable with it. It returns the listener's address.
func (n *Net) ListenTCP(at string, serve func(*net.TCPConn)) netip.AddrPort {
	n.t.Helper()
	return n.listenTCP(n.internet, at, serve)
}

// HostListenTCP is ListenTCP on the host, at an address that it has already.
func (n *Net) HostListenTCP(at string, serve func(*net.TCPConn)) netip.AddrPort {
	n.t.Helper()
	return n.listenTCP(n.host, at, serve)
}

func (n *Net) listenTCP(where *place, at string, serve func(*net.TCPConn)) netip.AddrPort {
	n.t.Helper()
	addr := netip.MustParseAddrPort(at)
	var listener *net.TCPListener
	where.do(func() {
		if where == n.internet {
			n.addAddress("lo", addr.Addr())
		}
		var err error
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
		n.must(err)
	})
	var running connections
	running.wait.Go(func() { running.accept(listener, serve) })
	n.onClose(func() { _ = listener.Close(); running.close() })
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// ListenUDP answers datagrams at an address and port of the internet. serve returns the
// answer, or nil for none.
func (n *Net) ListenUDP(at string, serve func(datagram []byte, from netip.AddrPort) []byte) netip.AddrPort {
	n.t.Helper()
	addr := netip.MustParseAddrPort(at)
	var conn *net.UDPConn
	n.internet.do(func() {
		n.addAddress("lo", addr.Addr())
		var err error
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		n.must(err)
	})
	var wait sync.WaitGroup
	wait.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			size, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if answer := serve(bytes.Clone(buf[:size]), from); answer != nil {
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		}
	})
	n.onClose(func() { _ = conn.Close(); wait.Wait() })
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// connections are those of one listener.
type connections struct {
	wait   sync.WaitGroup
	mu     sync.Mutex
	open   map[*net.TCPConn]bool
	closed bool
}

func (c *connections) accept(listener *net.TCPListener, serve func(*net.TCPConn)) {
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return
		}
		c.wait.Go(func() {
			defer conn.Close()
			if c.add(conn) {
				serve(conn)
				c.remove(conn)
			}
		})
	}
}

func (c *connections) add(conn *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*net.TCPConn]bool{}
	}
	c.open[conn] = true
	return !c.closed
}

func (c *connections) remove(conn *net.TCPConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

func (c *connections) close() {
	c.mu.Lock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.wait.Wait()
}
