// Package testnet makes a small world for network tests: a "host" in whose namespaces
// the code under test runs, and an "internet" with servers and a nameserver that
// misbehave as told. Neither is connected to anything else, and both end with the test.
package testnet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses between the host and the internet.
var (
	HostIPv4     = netip.MustParsePrefix("198.51.100.2/24")
	HostIPv6     = netip.MustParsePrefix("2001:db8:100::2/64")
	routerIPv4   = netip.MustParsePrefix("198.51.100.1/24")
	routerIPv6   = netip.MustParsePrefix("2001:db8:100::1/64")
	everyIPv4    = netip.MustParsePrefix("0.0.0.0/0")
	everyIPv6    = netip.MustParsePrefix("::/0")
	nameserverIP = netip.MustParseAddr("198.51.100.53")
)

// Net is the world. Its methods fail the test when they cannot do their work.
type Net struct {
	// DNS is the nameserver, which is also in the host's /etc/resolv.conf.
	DNS *DNS

	t              testing.TB
	host, internet *place
	closers        []func()
}

// New makes a world, or skips the test where this is not root.
func New(t testing.TB) *Net {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, NOT TESTED: making network namespaces needs root")
	}
	n := &Net{t: t, host: newPlace(), internet: newPlace()}
	t.Cleanup(n.close)
	for _, each := range []*place{n.host, n.internet} {
		if each.err != nil {
			t.Fatalf("a namespace cannot be made: %v", each.err)
		}
	}
	n.connect()
	n.DNS = newDNS(n, netip.AddrPortFrom(nameserverIP, 53))
	n.writeResolvConf()
	return n
}

// close ends the servers and then the namespaces, which nothing else holds.
func (n *Net) close() {
	for i := len(n.closers) - 1; i >= 0; i-- {
		n.closers[i]()
	}
	n.host.end()
	n.internet.end()
}

// onClose runs in the reverse order.
func (n *Net) onClose(closer func()) { n.closers = append(n.closers, closer) }

// Run calls a function in the host's namespaces. Sockets that it makes stay there, but
// goroutines that it starts do not.
func (n *Net) Run(call func()) { n.host.do(call) }

// Internet calls a function in the internet's namespace, as Run does.
func (n *Net) Internet(call func()) { n.internet.do(call) }

// Start starts a process in the host's namespaces, where its children will be too.
func (n *Net) Start(cmd *exec.Cmd) error {
	var err error
	n.host.do(func() { err = cmd.Start() })
	return err
}

// NoIPv6 takes the host's IPv6 address and routes away.
func (n *Net) NoIPv6() {
	n.t.Helper()
	n.host.do(func() {
		n.must(netlink.RouteDel(&netlink.Route{Dst: ipNet(everyIPv6), Gw: routerIPv6.Addr().AsSlice()}))
		n.must(netlink.AddrDel(n.link("eth0"), address(HostIPv6)))
	})
}

// HostAddress gives the host's interface one more address.
func (n *Net) HostAddress(addr string) {
	n.t.Helper()
	n.host.do(func() { n.addAddress("eth0", netip.MustParseAddr(addr)) })
}

// HostAnswers makes the host answer for a range although no interface has its addresses.
func (n *Net) HostAnswers(cidr string) {
	n.t.Helper()
	n.host.do(func() {
		const localTable = 255
		n.must(netlink.RouteAdd(&netlink.Route{Dst: ipNet(netip.MustParsePrefix(cidr)), LinkIndex: n.link("lo").Attrs().Index,
			Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: localTable}))
	})
}

// connect joins the two namespaces and gives them addresses and routes.
func (n *Net) connect() {
	n.host.do(func() {
		n.must(netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0",
			PeerNamespace: netlink.NsFd(n.internet.netns),
		}))
		n.bring(HostIPv4, HostIPv6)
		n.must(netlink.RouteAdd(&netlink.Route{Dst: ipNet(everyIPv4), Gw: routerIPv4.Addr().AsSlice()}))
		n.must(netlink.RouteAdd(&netlink.Route{Dst: ipNet(everyIPv6), Gw: routerIPv6.Addr().AsSlice()}))
	})
	n.internet.do(func() { n.bring(routerIPv4, routerIPv6) })
	n.host.do(n.awaitCarrier)
	n.internet.do(n.awaitCarrier)
}

// awaitCarrier waits until the kernel has taken note that both ends are up. Before that
// it loses packets, and whoever sent one tries again a second later.
func (n *Net) awaitCarrier() {
	for began := time.Now(); n.link("eth0").Attrs().OperState != netlink.OperUp; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			n.must(errors.New("the interface does not come up"))
		}
	}
}

func (n *Net) bring(addrs ...netip.Prefix) {
	n.must(netlink.LinkSetUp(n.link("lo")))
	n.must(netlink.LinkSetUp(n.link("eth0")))
	for _, each := range addrs {
		n.must(netlink.AddrAdd(n.link("eth0"), address(each)))
	}
}

func (n *Net) addAddress(link string, addr netip.Addr) {
	if addr.IsUnspecified() || addr.IsLoopback() {
		return
	}
	if err := netlink.AddrAdd(n.link(link), address(netip.PrefixFrom(addr, addr.BitLen()))); err != unix.EEXIST {
		n.must(err)
	}
}

func (n *Net) link(name string) netlink.Link {
	found, err := netlink.LinkByName(name)
	n.must(err)
	return found
}

func address(prefix netip.Prefix) *netlink.Addr {
	// Nobody else has the address, so it need not be looked for.
	made := &netlink.Addr{IPNet: ipNet(prefix)}
	if prefix.Addr().Is6() {
		made.Flags = unix.IFA_F_NODAD
	}
	return made
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

func (n *Net) writeResolvConf() {
	file := filepath.Join(n.t.TempDir(), "resolv.conf")
	n.must(os.WriteFile(file, []byte("nameserver "+nameserverIP.String()+"\n"), 0o644))
	n.host.do(func() { n.must(unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, "")) })
}

func (n *Net) must(err error) {
	if err != nil {
		n.t.Helper()
		// Not Fatal, since this may not be the test's goroutine.
		n.t.Errorf("testnet: %v", err)
		panic(err)
	}
}
