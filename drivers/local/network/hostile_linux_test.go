package network

import (
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
)

// ipPacket makes a packet from the guest.
func ipPacket(to netip.Addr, protocol byte, payload []byte) []byte {
	if to.Is4() {
		packet := make([]byte, header.IPv4MinimumSize+len(payload))
		header.IPv4(packet).Encode(&header.IPv4Fields{TotalLength: uint16(len(packet)), TTL: 64, Protocol: protocol,
			SrcAddr: tcpip.AddrFrom4(GuestIPv4.Addr().As4()), DstAddr: tcpip.AddrFrom4(to.As4())})
		copy(packet[header.IPv4MinimumSize:], payload)
		header.IPv4(packet).SetChecksum(^header.IPv4(packet).CalculateChecksum())
		return packet
	}
	packet := make([]byte, header.IPv6MinimumSize+len(payload))
	header.IPv6(packet).Encode(&header.IPv6Fields{PayloadLength: uint16(len(payload)), TransportProtocol: tcpip.TransportProtocolNumber(protocol), HopLimit: 64,
		SrcAddr: tcpip.AddrFrom16(GuestIPv6.Addr().As16()), DstAddr: tcpip.AddrFrom16(to.As16())})
	copy(packet[header.IPv6MinimumSize:], payload)
	return packet
}

var sourcePort atomic.Uint32

// synPacket opens a connection that nobody goes on with.
func synPacket(to netip.Addr, port uint16) []byte {
	segment := make(header.TCP, header.TCPMinimumSize)
	segment.Encode(&header.TCPFields{SrcPort: uint16(1024 + sourcePort.Add(1)%60000), DstPort: port, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 65535})
	return ipPacket(to, protocolTCP, segment)
}

func udpPacket(to netip.AddrPort, from uint16, payload []byte) []byte {
	datagram := make(header.UDP, header.UDPMinimumSize+len(payload))
	datagram.Encode(&header.UDPFields{SrcPort: from, DstPort: to.Port(), Length: uint16(len(datagram))})
	copy(datagram[header.UDPMinimumSize:], payload)
	return ipPacket(to.Addr(), protocolUDP, datagram)
}

// hostileWorld has one server, whose connections it counts.
func hostileWorld(t *testing.T) (*testnet.Net, *atomic.Int64) {
	world := testnet.New(t)
	accepted := new(atomic.Int64)
	world.ListenTCP("203.0.113.10:80", func(conn *net.TCPConn) { accepted.Add(1); echo(conn) })
	return world, accepted
}

// stillServes says that the network works after what was done to it.
func stillServes(t *testing.T, g *guest) {
	t.Helper()
	conn, err := g.dialTCP("203.0.113.10:80")
	must(t, err)
	exchangeBytes(t, conn, 1<<20)
}

func TestBadPackets(t *testing.T) {
	world, accepted := hostileWorld(t)
	received := make(chan netip.AddrPort, 100)
	world.ListenUDP("203.0.113.10:7000", func(_ []byte, from netip.AddrPort) []byte { received <- from; return nil })
	k, g := startKeeper(t, world, 0, open)
	server := netip.MustParseAddr("203.0.113.10")

	spoofed := synPacket(server, 80)
	copy(spoofed[12:16], []byte{10, 0, 0, 1})
	g.inject(spoofed)
	spoofed6 := synPacket(netip.MustParseAddr("2001:db8:200::10"), 80)
	spoofed6[8] = 0x20
	g.inject(spoofed6)
	fragment := udpPacket(netip.AddrPortFrom(server, 7000), 4000, make([]byte, 64))
	fragment[6] = 0x20
	g.inject(fragment)
	fragment6 := ipPacket(netip.MustParseAddr("2001:db8:200::10"), 44, make([]byte, 64))
	g.inject(fragment6)
	for protocol := range 256 {
		if protocol != protocolTCP && protocol != protocolUDP {
			g.inject(ipPacket(server, byte(protocol), make([]byte, 64)))
			g.inject(ipPacket(netip.MustParseAddr("2001:db8:200::10"), byte(protocol), make([]byte, 64)))
		}
	}
	g.inject(nil)
	g.inject([]byte{0x45})
	short := synPacket(server, 80)
	g.inject(short[:len(short)-1])
	options := append([]byte{0x46}, synPacket(server, 80)[1:]...)
	g.inject(options)
	for _, to := range []string{"203.0.113.10", "2001:db8:200::10", "127.0.0.1", "::1"} {
		ping := []byte{echoRequest, 0, 0, 0, 0, 0, 0, 0}
		protocol := byte(protocolICMP)
		if netip.MustParseAddr(to).Is6() {
			ping[0], protocol = echoRequestV6, protocolICMPv6
		}
		g.inject(ipPacket(netip.MustParseAddr(to), protocol, ping))
	}
	for range 2000 {
		garbage := make([]byte, 100)
		_, _ = rand.Read(garbage)
		garbage[0] = garbage[0]&0xf | 4<<4
		g.inject(garbage)
	}
	for _, reason := range []string{reasonSpoofed, reasonFragment, reasonProtocol, reasonMalformed, reasonOptions} {
		k.await(Access{Verdict: Refused, Protocol: Other, Reason: reason})
	}
	for _, to := range []string{"203.0.113.10", "2001:db8:200::10"} {
		k.await(Access{Verdict: Refused, Protocol: Other, Address: to, Reason: reasonPing})
	}
	stillServes(t, g)
	if n := accepted.Load(); n != 1 {
		t.Errorf("the server has %d connections", n)
	}
	if len(received) > 0 {
		t.Error("a fragment arrived")
	}
}

// TestLoopbackPackets sends what an honest guest's stack would keep to itself.
func TestLoopbackPackets(t *testing.T) {
	world, _ := hostileWorld(t)
	reached := make(chan string, 10)
	world.HostListenTCP("[::]:80", func(conn *net.TCPConn) { reached <- conn.LocalAddr().String() })
	k, g := startKeeper(t, world, 0, open)
	for _, to := range []string{"127.0.0.1", "127.1.2.3", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::127.0.0.1", "fe80::1"} {
		for range 3 {
			g.inject(synPacket(netip.MustParseAddr(to), 80))
			g.inject(udpPacket(netip.AddrPortFrom(netip.MustParseAddr(to), 53), 999, []byte("x")))
		}
	}
	stillServes(t, g)
	for _, each := range k.report().Accesses {
		if each.Address != "203.0.113.10" && each.Verdict == Allowed {
			t.Errorf("allowed: %+v", each)
		}
	}
	select {
	case at := <-reached:
		t.Errorf("%s was reached", at)
	default:
	}
}

// TestSynFlood opens connections and never goes on.
func TestSynFlood(t *testing.T) {
	world, _ := hostileWorld(t)
	k, g := startKeeper(t, world, 0, open)
	before := k.report()
	for range 20000 {
		g.inject(synPacket(netip.MustParseAddr("203.0.113.10"), 80))
	}
	during := k.report()
	t.Logf("before %s, %d goroutines, %d files; during %s, %d goroutines, %d files",
		before.RSS, before.Goroutines, before.Files, during.RSS, during.Goroutines, during.Files)
	if during.Goroutines > before.Goroutines+10*maxHalfOpen || during.Files > before.Files+maxTCPFlows {
		t.Error("that is too many")
	}
	var err error
	for began := time.Now(); time.Since(began) < hang; {
		if err = g.reach("203.0.113.10:80"); err == nil {
			break
		}
	}
	must(t, err)
	stillServes(t, g)
}

// TestUDPFlood sends from and to as many ports as there are.
func TestUDPFlood(t *testing.T) {
	world, _ := hostileWorld(t)
	k, g := startKeeper(t, world, 0, open)
	before := k.report()
	for i := range 50000 {
		g.inject(udpPacket(netip.AddrPortFrom(netip.MustParseAddr("203.0.113.20"), uint16(i)), uint16(i/7+1), []byte("flood")))
	}
	k.await(Access{Verdict: Refused, Protocol: UDP, Reason: reasonTooManyUDP})
	during := k.report()
	t.Logf("before %s, %d goroutines, %d files; during %s, %d goroutines, %d files, %d log entries",
		before.RSS, before.Goroutines, before.Files, during.RSS, during.Goroutines, during.Files, len(during.Accesses))
	if during.Goroutines > before.Goroutines+4*maxUDPFlows || during.Files > before.Files+maxUDPFlows+100 || len(during.Accesses) > maxAccesses {
		t.Error("that is too many")
	}
	stillServes(t, g)
}

// TestManyConnections holds ten thousand connections, most of which are turned away.
func TestManyConnections(t *testing.T) {
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Cur < 20000 {
		t.Skipf("SKIPPED: %d files are too few", limit.Cur)
	}
	world, _ := hostileWorld(t)
	k, g := startKeeper(t, world, 0, open)
	var open, refused atomic.Int64
	var wait sync.WaitGroup
	conns := make(chan io.Closer, 10000)
	for range 50 {
		wait.Go(func() {
			for range 200 {
				if conn, err := g.dialTCP("203.0.113.10:80"); err == nil {
					open.Add(1)
					conns <- conn
				} else {
					refused.Add(1)
				}
			}
		})
	}
	wait.Wait()
	during := k.report()
	t.Logf("%d open, %d refused, %s, %d goroutines, %d files", open.Load(), refused.Load(), during.RSS, during.Goroutines, during.Files)
	if open.Load() != maxTCPFlows || refused.Load() != 10000-maxTCPFlows {
		t.Errorf("%d connections were made and %d refused", open.Load(), refused.Load())
	}
	k.await(Access{Verdict: Refused, Protocol: TCP, Address: "203.0.113.10", Port: 80, Reason: reasonTooManyTCP})
	close(conns)
	for conn := range conns {
		_ = conn.Close()
	}
	for began := time.Now(); ; {
		if g.reach("203.0.113.10:80") == nil {
			break
		}
		if time.Since(began) > hang {
			t.Fatal("no connection can be made after the others ended")
		}
	}
	stillServes(t, g)
}

// TestStalledGuest stops reading in the middle of a download.
func TestStalledGuest(t *testing.T) {
	world := testnet.New(t)
	world.ListenTCP("203.0.113.10:19", func(conn *net.TCPConn) {
		for buf := make([]byte, 1<<20); ; {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	ours, guests := testPair(t, otherUser)
	k := startKeeperOn(t, world, 0, open, ours)
	// Nobody reads here; what is written is as good as a guest that hangs.
	raw := &guest{t: t, file: guests}
	must(t, unix.SetNonblock(int(guests.Fd()), true))
	for range 3000 {
		raw.inject(synPacket(netip.MustParseAddr("203.0.113.10"), 19))
		raw.inject(udpPacket(netip.MustParseAddrPort("10.0.0.1:9"), 5, nil))
	}
	k.await(Access{Verdict: Allowed, Protocol: TCP, Address: "203.0.113.10", Port: 19, Count: 100})
	k.await(Access{Verdict: Refused, Protocol: UDP, Address: "10.0.0.1", Count: 3000})
	must(t, guests.Close())
	k.waitDone()
}

// TestCloseAtWork closes a network that is carrying, connecting, resolving and waiting.
func TestCloseAtWork(t *testing.T) {
	world, _ := hostileWorld(t)
	world.ListenTCP("203.0.113.10:19", func(conn *net.TCPConn) {
		for buf := make([]byte, 1<<20); ; {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	world.ListenUDP("203.0.113.10:7000", func(data []byte, _ netip.AddrPort) []byte { return data })
	world.DNS.Set("silent.example.net", testnet.Answer{Silent: true})
	k, g := startKeeper(t, world, otherUser, open)
	idle, err := g.dialTCP("203.0.113.10:80")
	must(t, err)
	defer idle.Close()
	download, err := g.dialTCP("203.0.113.10:19")
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, download)
	}()
	unread, err := g.dialTCP("203.0.113.10:19")
	must(t, err)
	defer unread.Close()
	stream, err := g.dialTCP(netip.AddrPortFrom(GatewayIPv4, 53).String())
	must(t, err)
	defer stream.Close()
	datagrams := g.dialUDP("203.0.113.10:7000")
	_, err = datagrams.Write([]byte("x"))
	must(t, err)
	_, err = datagrams.Read(make([]byte, 1))
	must(t, err)
	message, _, err := newQuestion(dnsmessage.Question{Name: dnsmessage.MustNewName("silent.example.net."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET})
	must(t, err)
	_, err = g.dialUDP(netip.AddrPortFrom(GatewayIPv4, 53).String()).Write(message)
	must(t, err)
	// Half-open, and to nobody.
	g.inject(synPacket(netip.MustParseAddr("203.0.113.10"), 80))
	g.inject(synPacket(netip.MustParseAddr("203.0.114.10"), 80))
	k.await(Access{Verdict: Allowed, Protocol: TCP, Address: "203.0.113.10", Port: 80, Count: 2})
	began := time.Now()
	k.stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("closing took %v", took)
	}
	g.resetAll()
	<-ended
}

// TestGuestGone ends everything when the sandbox ends.
func TestGuestGone(t *testing.T) {
	world := testnet.New(t)
	ended := make(chan struct{})
	world.ListenTCP("203.0.113.10:81", func(conn *net.TCPConn) {
		_, _ = conn.Write([]byte("x"))
		_, _ = io.Copy(io.Discard, conn)
		close(ended)
	})
	k, g := startKeeper(t, world, 0, open)
	conn, err := g.dialTCP("203.0.113.10:81")
	must(t, err)
	_, err = conn.Read(make([]byte, 1))
	must(t, err)
	// As when the process is killed: nothing is said.
	must(t, unix.Shutdown(int(g.file.Fd()), unix.SHUT_RDWR))
	k.waitDone()
	<-ended
}
