package network

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Config is what a sandbox's network is made of.
type Config struct {
	// Link is our end of a Pair. It belongs to the network from the call on, also when
	// that fails.
	Link *os.File
	// Policy has the mode open or allow. With open, CIDRs open private ranges as well.
	Policy plugin.NetworkPolicy
	// Nameservers are asked for the guest. When there are none, those of
	// /etc/resolv.conf are.
	Nameservers []netip.AddrPort
}

// Network is a running network. Its goroutines end with Close, or by themselves soon
// after the guest's end is gone.
type Network struct {
	rules   *rules
	own     *hostAddrs
	answers *answers
	log     *accessLog
	link    *link
	stack   *stack.Stack
	dns     *resolver

	tcpFlows, udpFlows *limit

	ctx    context.Context
	cancel context.CancelFunc

	// mu guards the step from running to closing: no goroutine starts after it.
	mu      sync.Mutex
	closing bool
	running sync.WaitGroup
}

const nic = 1

// Start makes the network and begins to serve it.
func Start(config Config) (*Network, error) {
	rules, err := parsePolicy(config.Policy)
	if err != nil {
		_ = config.Link.Close()
		return nil, err
	}
	n := &Network{rules: rules, own: &hostAddrs{}, answers: newAnswers(time.Now), log: newAccessLog(time.Now)}
	nameservers := &upstream{fixed: config.Nameservers}
	n.dns = &resolver{rules: n.rules, answers: n.answers, log: n.log, own: n.own, exchange: nameservers.exchange}
	n.tcpFlows, n.udpFlows = flowLimits()
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if n.link, err = newLink(config.Link, n.admit); err != nil {
		n.cancel()
		return nil, plugin.Errorf(plugin.KindInternal, "%w", err)
	}
	if err := n.makeStack(); err != nil {
		n.Close()
		return nil, plugin.Errorf(plugin.KindInternal, "the sandbox's network cannot be made: %w", err)
	}
	n.spawn(func() {
		n.link.receive()
		// Without a guest nothing here has a purpose.
		n.cancel()
	})
	return n, nil
}

// Done is closed when the guest's end of the link is gone.
func (n *Network) Done() <-chan struct{} { return n.link.gone }

// Accesses returns the access log, the newest entry last.
func (n *Network) Accesses() []Access { return n.log.list() }

// Close ends every connection and waits for the network's goroutines.
func (n *Network) Close() {
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	n.cancel()
	n.link.Close()
	n.awaitRunning()
	n.stack.Close()
	n.stack.Wait()
}

// awaitRunning waits for all goroutines. One that is shaking hands with the guest
// listens to nothing but its endpoint's end.
func (n *Network) awaitRunning() {
	ended := make(chan struct{})
	go func() { n.running.Wait(); close(ended) }()
	for {
		for _, each := range n.stack.RegisteredEndpoints() {
			each.Abort()
		}
		select {
		case <-ended:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// enter counts the calling goroutine among those that Close waits for, until it calls
// leave. It may not when the network is closing.
func (n *Network) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closing {
		n.running.Add(1)
	}
	return !n.closing
}

func (n *Network) leave() { n.running.Done() }

// spawn runs a goroutine that Close waits for. It says whether it did.
func (n *Network) spawn(run func()) bool {
	if !n.enter() {
		return false
	}
	go func() { defer n.leave(); run() }()
	return true
}

func (n *Network) makeStack() error {
	n.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := n.tune(); err != nil {
		return err
	}
	n.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, n.forwarder())
	n.stack.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(n.stack, n.handleUDP).HandlePacket)
	if err := n.stack.CreateNIC(nic, n.link); err != nil {
		return fmt.Errorf("interface: %s", err)
	}
	for _, each := range []netip.Prefix{netip.PrefixFrom(GatewayIPv4, GuestIPv4.Bits()), netip.PrefixFrom(GatewayIPv6, GuestIPv6.Bits())} {
		err := n.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{
			Protocol:          protocolOf(each.Addr()),
			AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(each.Addr().AsSlice()), PrefixLen: each.Bits()},
		}, stack.AddressProperties{})
		if err != nil {
			return fmt.Errorf("address %s: %s", each, err)
		}
	}
	if err := n.serveDNS(); err != nil {
		return err
	}
	// The stack takes packets for any address, and answers from it.
	if err := n.stack.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("promiscuous mode: %s", err)
	}
	if err := n.stack.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("spoofing: %s", err)
	}
	n.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return nil
}

const (
	// tcpReceiveBuffer bounds what the guest may have in flight on a connection, in
	// bytes. Half of it becomes the window, which is four packets: as many as fit into
	// an ordinary user's socket. What does not fit the guest's end drops, and that
	// costs more than a larger window gains.
	tcpReceiveBuffer = 512 << 10
	tcpSendBuffer    = 512 << 10
	// maxHalfOpen bounds the connections that are being made, in number.
	maxHalfOpen = 512
)

// tune sets the stack up for a link that is short and owned by one guest.
func (n *Network) tune() error {
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: tcpReceiveBuffer, Max: tcpReceiveBuffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: tcpSendBuffer, Max: tcpSendBuffer}
	moderate := tcpip.TCPModerateReceiveBufferOption(false)
	// Nothing is late on a link without a way.
	timeWait := tcpip.TCPTimeWaitTimeoutOption(time.Second)
	synRetries := tcpip.TCPSynRetriesOption(3)
	sack := tcpip.TCPSACKEnabled(true)
	for _, each := range []tcpip.SettableTransportProtocolOption{&receive, &send, &moderate, &timeWait, &synRetries, &sack} {
		if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, each); err != nil {
			return fmt.Errorf("%T: %s", each, err)
		}
	}
	return nil
}

// admit lets packets in that the stack may see.
func (n *Network) admit(packet []byte) bool {
	found := inspect(packet)
	switch found.fate {
	case deliver:
		return true
	case drop:
		n.log.add(Access{Verdict: Refused, Protocol: Other, Reason: found.reason})
	case prohibit:
		n.log.add(Access{Verdict: Refused, Protocol: Other, Address: found.to.String(), Reason: found.reason})
		_ = n.link.write([][]byte{prohibited(packet)})
	}
	return false
}

// judge returns why an address may not be reached, or nothing, and the name that it is
// known by.
func (n *Network) judge(addr netip.Addr) (host, reason string) {
	name := n.answers.lookup(addr)
	return name.host, n.rules.judge(addr, name, n.own.owns)
}

// ends returns where a forwarded packet wants to go.
func ends(id stack.TransportEndpointID) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(addr, id.LocalPort)
}

func protocolOf(addr netip.Addr) tcpip.NetworkProtocolNumber {
	if addr.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}
