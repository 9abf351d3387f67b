package network

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	udpIdle = 60 * time.Second
	// udpIdleDNS is for questions to nameservers other than the gateway.
	udpIdleDNS = 10 * time.Second
	// udpBuffer is what may wait on a flow, in bytes.
	udpBuffer = 128 << 10

	reasonTooManyUDP = "too many UDP flows are open"
)

// handleUDP decides on a guest's first datagram from one port to another. It is called
// by the goroutine that receives, so it must not wait. When it returns false the stack
// tells the guest that the port is unreachable.
func (n *Network) handleUDP(request *udp.ForwarderRequest) bool {
	to := ends(request.ID())
	host, reason := n.judge(to.Addr())
	if reason != "" {
		n.log.add(target(Refused, UDP, host, to, reason))
		return false
	}
	if !n.udpFlows.acquire() {
		n.log.add(target(Refused, UDP, host, to, reasonTooManyUDP))
		return false
	}
	server, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		n.udpFlows.release()
		n.log.add(target(Failed, UDP, host, to, dialReason(err)))
		return false
	}
	queue := new(waiter.Queue)
	guest, failure := request.CreateEndpoint(queue)
	if failure != nil {
		n.udpFlows.release()
		_ = server.Close()
		return true
	}
	guest.SocketOptions().SetReceiveBufferSize(udpBuffer, true)
	n.log.add(target(Allowed, UDP, host, to, ""))
	carry := func() {
		defer n.udpFlows.release()
		if err := n.relayUDP(guest, queue, server, to); err != nil {
			n.log.add(target(Failed, UDP, host, to, dialReason(err)))
		}
	}
	if !n.spawn(carry) {
		n.udpFlows.release()
		_ = server.Close()
		guest.Close()
	}
	return true
}

// relayUDP carries datagrams until none has come for a while. It returns the error of
// the server's side that ended it.
func (n *Network) relayUDP(guest tcpip.Endpoint, queue *waiter.Queue, server *net.UDPConn, to netip.AddrPort) error {
	var last atomic.Int64
	began := time.Now()
	f := &flow{guest: guest, queue: queue, server: server, ended: make(chan struct{})}
	f.moved = func() { last.Store(int64(time.Since(began))) }
	quit := func() {
		f.end()
		_ = server.Close()
	}
	defer guest.Close()
	stop := context.AfterFunc(n.ctx, quit)
	defer stop()
	idle := udpIdle
	if to.Port() == 53 {
		idle = udpIdleDNS
	}
	var helpers sync.WaitGroup
	helpers.Go(func() {
		// Instead of moving a timer with every datagram, this looks when it was due.
		for left := idle; left > 0; left = idle - (time.Since(began) - time.Duration(last.Load())) {
			select {
			case <-f.ended:
				return
			case <-time.After(left):
			}
		}
		quit()
	})
	var down error
	helpers.Go(func() {
		down = f.down()
		quit()
	})
	up := f.up()
	quit()
	helpers.Wait()
	return serverFault(up, down)
}

// serverFault returns the error that is the server's, not of our own ending the flow.
func serverFault(errs ...error) error {
	for _, err := range errs {
		if isServerFault(err) {
			return err
		}
	}
	return nil
}
