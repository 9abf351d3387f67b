package network

import (
	"context"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	dialTimeout = 10 * time.Second
	// manyFlows is from how many connections on each gets smaller buffers, in bytes,
	// so that a guest that reads none of them cannot make this process large. The
	// window, half of the receive buffer, and the send buffer have to hold two whole
	// packets: with less, transfers were seen to stall. gVisor's sender splits no packet
	// for a small window while another one is under way, but waits for its
	// retransmission timer (transport/tcp/snd.go, maybeSendSegment).
	manyFlows          = 64
	smallReceiveBuffer = 256 << 10
	smallSendBuffer    = 128 << 10
	// flushTimeout bounds how long the last bytes of a connection wait for a guest
	// that does not read.
	flushTimeout = 30 * time.Second

	reasonTooManyTCP = "too many connections are open"
)

// forwarder returns what the stack gives TCP packets to that belong to no connection.
// It is two forwarders, since each has one size of receive buffers: making a buffer
// smaller later would lose what the guest was allowed to send.
func (n *Network) forwarder() func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	large := tcp.NewForwarder(n.stack, tcpReceiveBuffer, maxHalfOpen, n.handleTCP)
	small := tcp.NewForwarder(n.stack, smallReceiveBuffer, maxHalfOpen, n.handleTCP)
	return func(id stack.TransportEndpointID, packet *stack.PacketBuffer) bool {
		if n.crowded() {
			return small.HandlePacket(id, packet)
		}
		return large.HandlePacket(id, packet)
	}
}

func (n *Network) crowded() bool { return n.tcpFlows.used.Load() > manyFlows }

// handleTCP decides on a guest's SYN. The stack calls it on a goroutine of its own.
func (n *Network) handleTCP(request *tcp.ForwarderRequest) {
	if !n.enter() {
		request.Complete(true)
		return
	}
	defer n.leave()
	n.forwardTCP(request)
}

func (n *Network) forwardTCP(request *tcp.ForwarderRequest) {
	to := ends(request.ID())
	host, reason := n.judge(to.Addr())
	verdict := Refused
	var server *net.TCPConn
	if reason == "" {
		if n.tcpFlows.acquire() {
			defer n.tcpFlows.release()
			verdict = Failed
			server, reason = n.dialTCP(to)
		} else {
			reason = reasonTooManyTCP
		}
	}
	if reason != "" {
		request.Complete(true)
		n.log.add(target(verdict, TCP, host, to, reason))
		return
	}
	defer server.Close()
	n.log.add(target(Allowed, TCP, host, to, ""))
	var queue waiter.Queue
	guest, err := request.CreateEndpoint(&queue)
	request.Complete(false)
	if err != nil {
		// The guest has given up.
		_ = server.SetLinger(0)
		return
	}
	if n.crowded() {
		guest.SocketOptions().SetSendBufferSize(smallSendBuffer, true)
	}
	n.relayTCP(guest, &queue, server)
}

// dialTCP connects to the literal address, and returns why it cannot.
func (n *Network) dialTCP(to netip.AddrPort) (*net.TCPConn, string) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: time.Minute, FallbackDelay: -1}
	made, err := dialer.DialContext(n.ctx, "tcp", to.String())
	if err != nil {
		return nil, dialReason(err)
	}
	return made.(*net.TCPConn), ""
}

// relayTCP carries a connection until both sides have ended it, or one has reset it.
func (n *Network) relayTCP(guest tcpip.Endpoint, queue *waiter.Queue, server *net.TCPConn) {
	f := &flow{guest: guest, queue: queue, server: server, stream: true, ended: make(chan struct{})}
	reset := func() {
		// Unsent data is thrown away on both sides and the peers see a reset.
		f.end()
		_ = server.SetLinger(0)
		_ = server.Close()
		guest.Abort()
	}
	stop := context.AfterFunc(n.ctx, reset)
	defer stop()
	up := make(chan error, 1)
	go func() {
		err := f.up()
		if err == nil {
			err = server.CloseWrite()
		}
		if err != nil {
			reset()
		}
		up <- err
	}()
	err := f.down()
	if err == nil && guest.Shutdown(tcpip.ShutdownWrite) != nil {
		err = errFlowEnded
	}
	if err != nil {
		reset()
	}
	if upErr := <-up; upErr == nil && err == nil {
		f.flush()
	}
	guest.Close()
}

// flush waits until the guest has taken what the server sent last: until then the
// connection counts.
func (f *flow) flush() {
	endpoint, ok := f.guest.(*tcp.Endpoint)
	if !ok {
		return
	}
	pause := time.Millisecond
	for began := time.Now(); time.Since(began) < flushTimeout; pause = min(2*pause, time.Second) {
		switch endpoint.EndpointState() {
		case tcp.StateTimeWait, tcp.StateClose, tcp.StateError:
			return
		}
		select {
		case <-f.ended:
			return
		case <-time.After(pause):
		}
	}
	f.guest.Abort()
}
