package network

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
	"github.com/sandboxctl/sandboxctl/plugin"
)

var open = plugin.NetworkPolicy{Mode: plugin.NetworkOpen}

func allow(hosts []string, cidrs ...string) plugin.NetworkPolicy {
	return plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: hosts, CIDRs: cidrs}
}

// echo sends back what it gets, and ends after the peer did.
func echo(conn *net.TCPConn) {
	_, _ = io.Copy(conn, conn)
	_ = conn.CloseWrite()
}

func asUsers(t *testing.T, test func(*testing.T, uint32)) {
	for name, uid := range map[string]uint32{"root": 0, "ordinary": otherUser} {
		t.Run(name, func(t *testing.T) { test(t, uid) })
	}
}

func TestOpen(t *testing.T) {
	asUsers(t, func(t *testing.T, uid uint32) {
		world := testnet.New(t)
		world.DNS.Set("server.example.org", testnet.Answer{TTL: 60, Addrs: []netip.Addr{
			netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:200::10")}})
		world.ListenTCP("203.0.113.10:80", echo)
		world.ListenTCP("[2001:db8:200::10]:80", echo)
		world.ListenUDP("203.0.113.10:7000", func(data []byte, _ netip.AddrPort) []byte { return data })
		k, g := startKeeper(t, world, uid, open)
		if got := g.resolve("server.example.org", dnsmessage.TypeA); len(got) != 1 || got[0] != "203.0.113.10" {
			t.Fatalf("A: %v", got)
		}
		if got := g.resolve("server.example.org", dnsmessage.TypeAAAA); len(got) != 1 || got[0] != "2001:db8:200::10" {
			t.Fatalf("AAAA: %v", got)
		}
		for _, at := range []string{"203.0.113.10:80", "[2001:db8:200::10]:80"} {
			conn, err := g.dialTCP(at)
			must(t, err)
			exchangeBytes(t, conn, 3<<20)
		}
		datagrams := g.dialUDP("203.0.113.10:7000")
		for _, size := range []int{0, 1, 1000, 60000} {
			sent := bytes.Repeat([]byte("x"), size)
			_, err := datagrams.Write(sent)
			must(t, err)
			buf := make([]byte, 64<<10)
			n, err := datagrams.Read(buf)
			must(t, err)
			if !bytes.Equal(buf[:n], sent) {
				t.Fatalf("a datagram of %d bytes came back with %d", size, n)
			}
		}
		k.await(Access{Verdict: Allowed, Protocol: DNS, Host: "server.example.org"})
		k.await(Access{Verdict: Allowed, Protocol: TCP, Host: "server.example.org", Address: "203.0.113.10", Port: 80})
		k.await(Access{Verdict: Allowed, Protocol: UDP, Host: "server.example.org", Address: "203.0.113.10", Port: 7000})
		t.Logf("keeper: %s", k.report().RSS)
	})
}

type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// exchangeBytes sends random bytes, ends its side, and expects the same back and then
// the end.
func exchangeBytes(t *testing.T, conn halfCloser, size int64) {
	t.Helper()
	sent, received := sha256.New(), sha256.New()
	writing := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(conn, sent), rand.Reader, size)
		if err == nil {
			err = conn.CloseWrite()
		}
		writing <- err
	}()
	n, err := io.Copy(received, conn)
	must(t, err)
	must(t, <-writing)
	if n != size || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
		t.Fatalf("%d bytes were sent and %d, or others, came back", size, n)
	}
}

// TestHalfClose has the server end first and the guest go on sending.
func TestHalfClose(t *testing.T) {
	world := testnet.New(t)
	got := make(chan string, 1)
	world.ListenTCP("203.0.113.10:80", func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "hello")
		_ = conn.CloseWrite()
		all, _ := io.ReadAll(conn)
		got <- string(all)
	})
	_, g := startKeeper(t, world, 0, open)
	conn, err := g.dialTCP("203.0.113.10:80")
	must(t, err)
	all, err := io.ReadAll(conn)
	must(t, err)
	if string(all) != "hello" {
		t.Fatalf("got %q", all)
	}
	_, err = io.WriteString(conn, "and good bye")
	must(t, err)
	must(t, conn.CloseWrite())
	if said := <-got; said != "and good bye" {
		t.Fatalf("the server got %q", said)
	}
}

func TestResets(t *testing.T) {
	world := testnet.New(t)
	serverSaw := make(chan error, 1)
	world.ListenTCP("203.0.113.10:80", func(conn *net.TCPConn) {
		// A reset by the server.
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.SetLinger(0)
	})
	world.ListenTCP("203.0.113.10:81", func(conn *net.TCPConn) {
		_, _ = conn.Write([]byte("x"))
		_, err := io.Copy(io.Discard, conn)
		serverSaw <- err
	})
	k, g := startKeeper(t, world, 0, open)
	conn, err := g.dialTCP("203.0.113.10:80")
	must(t, err)
	_, err = conn.Write([]byte("x"))
	must(t, err)
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("after the server's reset the guest saw %v", err)
	}
	conn, err = g.dialTCP("203.0.113.10:81")
	must(t, err)
	_, err = conn.Read(make([]byte, 1))
	must(t, err)
	g.resetAll()
	if err := <-serverSaw; err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("after the guest's reset the server saw %v", err)
	}
	if err := g.reach("203.0.113.10:82"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a closed port: %v", err)
	}
	k.await(Access{Verdict: Failed, Protocol: TCP, Address: "203.0.113.10", Port: 82, Reason: "connection refused by the server"})
}

// resetAll resets the guest's connections.
func (g *guest) resetAll() {
	for _, each := range g.stack.RegisteredEndpoints() {
		each.Abort()
	}
}

// TestNeverReachable tries the ways to the host and to metadata services, which answer
// in this world, for the widest policy.
func TestNeverReachable(t *testing.T) {
	asUsers(t, func(t *testing.T, uid uint32) {
		world := testnet.New(t)
		served := make(chan string, 100)
		serve := func(conn *net.TCPConn) { served <- conn.LocalAddr().String() }
		world.HostListenTCP("[::]:80", serve)
		world.HostAddress("203.0.113.77")
		for _, at := range []string{"169.254.169.254:80", "100.100.100.200:80", "168.63.129.16:80", "192.0.0.192:80", "10.1.2.3:80", "[fd00:ec2::254]:80", "[64:ff9b::7f00:1]:80"} {
			world.ListenTCP(at, serve)
		}
		k, g := startKeeper(t, world, uid, open)
		for at, reason := range map[string]string{
			"169.254.169.254:80":     "",
			"100.100.100.200:80":     "",
			"168.63.129.16:80":       "",
			"192.0.0.192:80":         "",
			"10.1.2.3:80":            reasonPrivate,
			"0.0.0.1:80":             "",
			"255.255.255.255:80":     "",
			"240.0.0.1:80":           "",
			"198.51.100.2:80":        reasonOwn,
			"203.0.113.77:80":        reasonOwn,
			"192.0.0.1:80":           reasonLink,
			"192.0.0.3:80":           reasonLink,
			"[2001:db8:100::2]:80":   reasonOwn,
			"[fd00:ec2::254]:80":     "",
			"[64:ff9b::7f00:1]:80":   "",
			"[2002:7f00:1::1]:80":    "",
			"[fe80::1]:80":           "",
			"[fd8e:36c4:5b1a::1]:80": reasonLink,
		} {
			began := time.Now()
			if err := g.reach(at); err == nil {
				t.Errorf("%s was reached", at)
			} else if since := time.Since(began); since > 20*time.Second {
				t.Errorf("%s: refused after %v only: %v", at, since, err)
			}
			addr := netip.MustParseAddrPort(at)
			if addr.Addr() == broadcast {
				k.await(Access{Verdict: Refused, Protocol: Other, Address: "255.255.255.255"})
				continue
			}
			if addr.Addr().IsLinkLocalUnicast() && addr.Addr().Is6() || !addr.Addr().IsGlobalUnicast() {
				// The guest's own stack may not even send it.
				continue
			}
			k.await(Access{Verdict: Refused, Protocol: TCP, Address: addr.Addr().String(), Reason: reason})
		}
		select {
		case at := <-served:
			t.Errorf("%s was connected to", at)
		default:
		}
	})
}

// TestLocalRoutes has the host answer for addresses that no interface of it has.
func TestLocalRoutes(t *testing.T) {
	world := testnet.New(t)
	for _, each := range []string{"203.0.113.128/25", "2001:db8:300::/48"} {
		world.HostAnswers(each)
	}
	reached := make(chan string, 10)
	world.HostListenTCP("[::]:80", func(conn *net.TCPConn) { reached <- conn.LocalAddr().String() })
	k, g := startKeeper(t, world, otherUser, open)
	for _, at := range []string{"203.0.113.200:80", "[2001:db8:300::1]:80", "198.51.100.255:80"} {
		wantRefused(t, g, at)
		addr := netip.MustParseAddrPort(at).Addr()
		k.await(Access{Verdict: Refused, Protocol: TCP, Address: addr.String(), Port: 80, Reason: reasonOwn})
		_, err := g.dialUDP(at).Write([]byte("x"))
		must(t, err)
		k.await(Access{Verdict: Refused, Protocol: UDP, Address: addr.String(), Port: 80, Reason: reasonOwn})
	}
	if len(reached) > 0 {
		t.Errorf("%s was reached", <-reached)
	}
}

// TestOpenRanges opens a private range beside everything public.
func TestOpenRanges(t *testing.T) {
	world := testnet.New(t)
	for _, at := range []string{"10.1.2.3:80", "10.2.2.3:80", "203.0.113.10:80"} {
		world.ListenTCP(at, echo)
	}
	_, g := startKeeper(t, world, 0, plugin.NetworkPolicy{Mode: plugin.NetworkOpen, CIDRs: []string{"10.1.0.0/16"}})
	must(t, g.reach("10.1.2.3:80"))
	must(t, g.reach("203.0.113.10:80"))
	wantRefused(t, g, "10.2.2.3:80")
}

// TestPing expects the gateway, and nobody else, to answer.
func TestPing(t *testing.T) {
	world := testnet.New(t)
	_, g := startKeeper(t, world, 0, open)
	ping := []byte{echoRequest, 0, 0, 0, 0, 1, 0, 1}
	binary.BigEndian.PutUint16(ping[2:], ^checksum.Checksum(ping, 0))
	before := g.stack.Stats().ICMP.V4.PacketsReceived.EchoReply.Value()
	prohibitedBefore := g.stack.Stats().ICMP.V4.PacketsReceived.DstUnreachable.Value()
	g.inject(ipPacket(netip.MustParseAddr("203.0.113.10"), protocolICMP, ping))
	g.inject(ipPacket(GatewayIPv4, protocolICMP, ping))
	received := g.stack.Stats().ICMP.V4.PacketsReceived
	for began := time.Now(); received.EchoReply.Value() == before || received.DstUnreachable.Value() == prohibitedBefore; {
		if time.Since(began) > hang {
			t.Fatalf("%d replies, %d unreachable", received.EchoReply.Value()-before, received.DstUnreachable.Value()-prohibitedBefore)
		}
		time.Sleep(time.Millisecond)
	}
	if n := received.EchoReply.Value() - before; n != 1 {
		t.Errorf("%d replies", n)
	}
}
