package network

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
)

func addrs(list ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, each := range list {
		parsed = append(parsed, netip.MustParseAddr(each))
	}
	return parsed
}

func wantRefused(t *testing.T, g *guest, at string) {
	t.Helper()
	began := time.Now()
	err := g.reach(at)
	if err == nil {
		t.Fatalf("%s was reached", at)
	}
	if !strings.Contains(err.Error(), "refused") {
		t.Errorf("%s is not refused with a reset but with: %v", at, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%s was refused after %v only", at, took)
	}
}

func TestAllowedHosts(t *testing.T) {
	asUsers(t, func(t *testing.T, uid uint32) {
		world := testnet.New(t)
		for _, at := range []string{"203.0.113.10:80", "203.0.113.11:80", "203.0.113.12:80", "203.0.113.13:80"} {
			world.ListenTCP(at, echo)
		}
		world.ListenUDP("203.0.113.10:7000", func(data []byte, _ netip.AddrPort) []byte { return data })
		world.DNS.SetAddrs("pkg.example.net", "203.0.113.10")
		world.DNS.SetAddrs("a.b.example.org", "203.0.113.11")
		world.DNS.SetAddrs("example.org", "203.0.113.12")
		world.DNS.SetAddrs("other.example.com", "203.0.113.13")
		k, g := startKeeper(t, world, uid, allow([]string{"pkg.example.net", "*.example.org"}))

		wantRefused(t, g, "203.0.113.10:80")
		k.await(Access{Verdict: Refused, Protocol: TCP, Address: "203.0.113.10", Port: 80, Reason: reasonNoMatch})
		if got := g.resolve("PKG.Example.NET", dnsmessage.TypeA); !slices.Equal(got, []string{"203.0.113.10"}) {
			t.Fatalf("an allowed name resolves to %v", got)
		}
		must(t, g.reach("203.0.113.10:80"))
		k.await(Access{Verdict: Allowed, Protocol: TCP, Host: "pkg.example.net", Address: "203.0.113.10", Port: 80})
		if got := g.resolve("a.b.example.org", dnsmessage.TypeA); len(got) != 1 {
			t.Fatalf("a name below a wildcard resolves to %v", got)
		}
		must(t, g.reach("203.0.113.11:80"))
		for name, at := range map[string]string{"example.org": "203.0.113.12:80", "other.example.com": "203.0.113.13:80", "10.113.0.203.in-addr.arpa": ""} {
			kind := dnsmessage.TypeA
			if at == "" {
				kind = dnsmessage.TypePTR
			}
			if reply := g.ask(name, kind); reply.RCode != dnsmessage.RCodeNameError || len(reply.Answers) > 0 {
				t.Errorf("%s: %v", name, reply)
			}
			k.await(Access{Verdict: Refused, Protocol: DNS, Host: name, Reason: reasonNameNotAllowed})
			if at != "" {
				wantRefused(t, g, at)
			}
		}
		for _, each := range world.DNS.Queries() {
			if each.Name != "pkg.example.net" && each.Name != "a.b.example.org" {
				t.Errorf("the nameserver was asked for %s", each.Name)
			}
		}
		// Another port of an allowed address, over UDP.
		datagrams := g.dialUDP("203.0.113.10:7000")
		_, err := datagrams.Write([]byte("hello"))
		must(t, err)
		_, err = datagrams.Read(make([]byte, 10))
		must(t, err)
		// A refused datagram is answered with an error at once.
		datagrams = g.dialUDP("203.0.113.99:7000")
		_, err = datagrams.Write([]byte("hello"))
		must(t, err)
		if err := readError(datagrams); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("after a refused datagram: %v", err)
		}
		k.await(Access{Verdict: Refused, Protocol: UDP, Address: "203.0.113.99", Port: 7000, Reason: reasonNoMatch})
	})
}

// readError waits for the error that an ICMP message brings, of which gonet does not
// wake its readers.
func readError(conn *gonet.UDPConn) error {
	for began := time.Now(); ; {
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := conn.Read(make([]byte, 10))
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(began) > hang {
			return err
		}
	}
}

func TestAllowedRanges(t *testing.T) {
	world := testnet.New(t)
	for _, at := range []string{"203.0.113.10:80", "203.0.113.16:80", "[2001:db8:200::10]:80", "[2001:db8:201::10]:80", "10.1.2.3:80", "10.1.3.3:80", "192.168.7.7:80"} {
		world.ListenTCP(at, echo)
	}
	world.DNS.SetAddrs("pkg.example.net", "10.1.2.3", "192.168.7.7")
	k, g := startKeeper(t, world, 0, allow([]string{"pkg.example.net"}, "203.0.113.0/28", "2001:db8:200::/48", "10.1.2.3/32"))
	for _, at := range []string{"203.0.113.10:80", "[2001:db8:200::10]:80", "10.1.2.3:80"} {
		must(t, g.reach(at))
	}
	for _, at := range []string{"203.0.113.16:80", "[2001:db8:201::10]:80", "10.1.3.3:80", "192.168.7.7:80"} {
		wantRefused(t, g, at)
	}
	k.await(Access{Verdict: Refused, Protocol: TCP, Address: "10.1.3.3", Reason: reasonPrivate})
	// A name does not open a private address, a range does.
	if got := g.resolve("pkg.example.net", dnsmessage.TypeA); len(got) != 2 {
		t.Fatalf("resolved to %v", got)
	}
	must(t, g.reach("10.1.2.3:80"))
	wantRefused(t, g, "192.168.7.7:80")
	k.await(Access{Verdict: Refused, Protocol: TCP, Host: "pkg.example.net", Address: "192.168.7.7", Reason: reasonRebinding})
}

// TestRangesOnly has no allowed names, so none resolves.
func TestRangesOnly(t *testing.T) {
	world := testnet.New(t)
	world.DNS.SetAddrs("pkg.example.net", "203.0.113.10")
	_, g := startKeeper(t, world, 0, allow(nil, "203.0.113.10/32"))
	if reply := g.ask("pkg.example.net", dnsmessage.TypeA); reply.RCode != dnsmessage.RCodeNameError {
		t.Errorf("%v", reply)
	}
	if asked := world.DNS.Queries(); len(asked) > 0 {
		t.Errorf("the nameserver was asked %v", asked)
	}
}

// TestExpiry follows a name whose TTL is zero and whose address changes.
func TestExpiry(t *testing.T) {
	world := testnet.New(t)
	world.ListenTCP("203.0.113.10:80", echo)
	world.ListenTCP("203.0.113.11:80", echo)
	world.DNS.Set("pkg.example.net", testnet.Answer{Addrs: addrs("203.0.113.10"), Next: &testnet.Answer{Addrs: addrs("203.0.113.11"), TTL: 600}})
	k, g := startKeeper(t, world, 0, allow([]string{"pkg.example.net"}))
	g.resolve("pkg.example.net", dnsmessage.TypeA)
	lasting, err := g.dialTCP("203.0.113.10:80")
	must(t, err)
	if got := g.resolve("pkg.example.net", dnsmessage.TypeA); !slices.Equal(got, []string{"203.0.113.11"}) {
		t.Fatalf("the second answer was %v", got)
	}
	must(t, g.reach("203.0.113.11:80"))
	began := time.Now()
	for g.reach("203.0.113.10:80") == nil {
		if time.Since(began) > hang {
			t.Fatal("the address of an expired answer can still be reached")
		}
		time.Sleep(100 * time.Millisecond)
	}
	if lived := time.Since(began); lived < minAnswerLife-2*time.Second {
		t.Errorf("the answer lived for %v only", lived)
	}
	k.await(Access{Verdict: Refused, Protocol: TCP, Host: "pkg.example.net", Address: "203.0.113.10", Reason: reasonExpired})
	// What was connected before goes on.
	exchangeBytes(t, lasting, 1<<20)
	must(t, g.reach("203.0.113.11:80"))
}

// TestRebinding has an allowed name point at what must not be reached.
func TestRebinding(t *testing.T) {
	world := testnet.New(t)
	reached := make(chan string, 10)
	serve := func(conn *net.TCPConn) { reached <- conn.LocalAddr().String() }
	world.HostListenTCP("[::]:80", serve)
	targets := []string{"127.0.0.1", "169.254.169.254", "10.1.2.3", "198.51.100.2", "100.100.100.200", "0.0.0.0", "::1", "::ffff:127.0.0.1", "2001:db8:100::2", "64:ff9b::a9fe:a9fe", "fd00:ec2::254"}
	for _, each := range []string{"169.254.169.254:80", "10.1.2.3:80", "100.100.100.200:80", "[fd00:ec2::254]:80"} {
		world.ListenTCP(each, serve)
	}
	world.DNS.SetAddrs("evil.example.net", targets...)
	k, g := startKeeper(t, world, 0, allow([]string{"evil.example.net"}))
	got := append(g.resolve("evil.example.net", dnsmessage.TypeA), g.resolve("evil.example.net", dnsmessage.TypeAAAA)...)
	if len(got) != len(targets) {
		t.Fatalf("resolved to %v", got)
	}
	for _, each := range targets {
		addr := netip.MustParseAddr(each)
		if addr.Unmap().IsLoopback() || addr.IsUnspecified() {
			// The guest's own; our end does not rely on that.
			g.inject(synPacket(addr, 80))
			continue
		}
		wantRefused(t, g, netip.AddrPortFrom(addr, 80).String())
	}
	k.await(Access{Verdict: Refused, Protocol: TCP, Host: "evil.example.net", Address: "10.1.2.3", Reason: reasonRebinding})
	k.await(Access{Verdict: Refused, Protocol: TCP, Host: "evil.example.net", Address: "198.51.100.2", Reason: reasonOwn})
	select {
	case at := <-reached:
		t.Fatalf("%s was reached", at)
	default:
	}
}

func TestDNSMisbehaviour(t *testing.T) {
	world := testnet.New(t)
	forged := netip.MustParseAddr("203.0.113.66")
	for name, answer := range map[string]testnet.Answer{
		"chain.example.net":     {CNAME: "next.example.com", TTL: 60},
		"next.example.com":      {CNAME: "last.example.com", TTL: 60},
		"last.example.com":      {Addrs: addrs("203.0.113.10"), TTL: 60},
		"loop.example.net":      {CNAME: "loop2.example.net", TTL: 60, Extra: []dnsmessage.Resource{testnet.Record("unasked.example.com", 60, forged.String())}},
		"id.example.net":        {Addrs: addrs("203.0.113.10"), WrongID: true, WrongName: true, Forged: forged, TTL: 60},
		"truncated.example.net": {Addrs: addrs("203.0.113.10"), Truncate: true, TTL: 60},
		"silent.example.net":    {Silent: true, Next: &testnet.Answer{Addrs: addrs("203.0.113.10"), TTL: 60}},
		"extra.example.net": {Addrs: addrs("203.0.113.10"), TTL: 1 << 30,
			Extra: []dnsmessage.Resource{testnet.Record("unasked.example.com", 60, forged.String())}},
		"failing.example.net": {RCode: dnsmessage.RCodeServerFailure},
	} {
		world.DNS.Set(name, answer)
	}
	k, g := startKeeper(t, world, 0, allow([]string{"*.example.net"}))
	for _, name := range []string{"chain.example.net", "id.example.net", "truncated.example.net", "silent.example.net", "extra.example.net"} {
		reply := g.ask(name, dnsmessage.TypeA)
		var got []string
		for _, each := range reply.Answers {
			if each.Header.TTL > uint32(maxTTL/time.Second) {
				t.Errorf("%s: a TTL of %d", name, each.Header.TTL)
			}
			if a, ok := each.Body.(*dnsmessage.AResource); ok {
				got = append(got, netip.AddrFrom4(a.A).String())
			}
		}
		if !slices.Equal(got, []string{"203.0.113.10"}) {
			t.Errorf("%s resolves to %v", name, got)
		}
	}
	if reply := g.ask("loop.example.net", dnsmessage.TypeA); len(reply.Answers) != 1 {
		t.Errorf("a chain without end: %v", reply.Answers)
	}
	if reply := g.ask("failing.example.net", dnsmessage.TypeA); reply.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("a failing nameserver: %v", reply.RCode)
	}
	k.await(Access{Verdict: Failed, Protocol: DNS, Host: "failing.example.net", Reason: reasonServerFailed})
	if reply := g.ask("missing.example.net", dnsmessage.TypeA); reply.RCode != dnsmessage.RCodeNameError {
		t.Errorf("a missing name: %v", reply.RCode)
	}
	k.await(Access{Verdict: Failed, Protocol: DNS, Host: "missing.example.net", Reason: reasonNoSuchName})
	wantRefused(t, g, netip.AddrPortFrom(forged, 80).String())
	k.await(Access{Verdict: Refused, Protocol: TCP, Address: forged.String(), Reason: reasonNoMatch})
	ids := map[uint16]bool{}
	ports := map[netip.AddrPort]bool{}
	asked := world.DNS.Queries()
	for _, each := range asked {
		ids[each.ID], ports[each.From] = true, true
	}
	if len(ids) < len(asked)-1 || len(ports) < len(asked)-1 {
		t.Errorf("%d questions had %d ids and came from %d ports", len(asked), len(ids), len(ports))
	}
}

func TestDNSOverTCPAndServices(t *testing.T) {
	world := testnet.New(t)
	var many []netip.Addr
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)}))
	}
	world.DNS.Set("many.example.net", testnet.Answer{Addrs: many, TTL: 60})
	_, g := startKeeper(t, world, 0, open)
	if reply := g.ask("many.example.net", dnsmessage.TypeA); !reply.Truncated || len(reply.Answers) > 0 {
		t.Errorf("a long answer: truncated %v, %d records", reply.Truncated, len(reply.Answers))
	}
	conn, err := g.dialTCP(netip.AddrPortFrom(GatewayIPv6, 53).String())
	must(t, err)
	for range 2 {
		if reply := askStream(t, conn, "many.example.net"); len(reply.Answers) != 100 {
			t.Errorf("a long answer over TCP has %d records", len(reply.Answers))
		}
	}
	for _, kind := range []dnsmessage.Type{typeHTTPS, typeSVCB} {
		if reply := g.ask("many.example.net", kind); reply.RCode != dnsmessage.RCodeSuccess || len(reply.Answers) > 0 {
			t.Errorf("type %d: %v", kind, reply)
		}
	}
	must(t, conn.CloseWrite())
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the last question: %v", err)
	}
}

func askStream(t *testing.T, conn *gonet.TCPConn, name string) dnsmessage.Message {
	t.Helper()
	message, _, err := newQuestion(dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET})
	must(t, err)
	must(t, writeStream(conn, message))
	answer, err := readStream(conn)
	must(t, err)
	var reply dnsmessage.Message
	must(t, reply.Unpack(answer))
	return reply
}

// TestWithoutIPv6 has a host that cannot use IPv6 addresses.
func TestWithoutIPv6(t *testing.T) {
	world := testnet.New(t)
	world.NoIPv6()
	world.DNS.SetAddrs("both.example.net", "203.0.113.10", "2001:db8:200::10")
	_, g := startKeeper(t, world, 0, open)
	if got := g.resolve("both.example.net", dnsmessage.TypeAAAA); len(got) > 0 {
		t.Errorf("AAAA: %v", got)
	}
	if got := g.resolve("both.example.net", dnsmessage.TypeA); len(got) != 1 {
		t.Errorf("A: %v", got)
	}
	if err := g.reach("[2001:db8:200::10]:80"); err == nil {
		t.Error("an IPv6 address was reached")
	}
}
