package network

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// linkPatience is how long a packet waits for a guest that does not read. After
	// that packets are dropped at once until the guest reads again: it is paused, or
	// up to something, and the one goroutine that receives must not hang on it.
	linkPatience = time.Second
	// smallPacket is up to which size, in bytes, a packet is copied so that a short
	// one does not hold a long buffer.
	smallPacket = 16 << 10
)

// link is our end of the guest's link as the stack knows it. Unlike gVisor's own
// endpoint it waits when the socket is full: an ordinary user's socket holds three
// packets, and the stack would take each that is dropped for a congested network.
type link struct {
	file   *os.File
	socket syscall.RawConn
	// admit decides on each packet that comes in.
	admit func(packet []byte) bool
	mtu   uint32

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher

	// writing also keeps the senders in line, so that only one waits for the socket.
	writing sync.Mutex
	stalled bool

	// gone is closed when nothing will come in any more.
	gone chan struct{}
}

// newLink takes over the file.
func newLink(file *os.File, admit func([]byte) bool) (*link, error) {
	defer file.Close()
	// How a file waits is decided when it is made, so it is made anew.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the sandbox's link cannot be used: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("the sandbox's link cannot be used: %w", err), unix.Close(fd))
	}
	made := &link{file: os.NewFile(uintptr(fd), "link"), admit: admit, mtu: MTU, gone: make(chan struct{})}
	if made.socket, err = made.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("the sandbox's link cannot be used: %w", err), made.file.Close())
	}
	return made, nil
}

// receive hands the guest's packets to the stack until the guest's end, or ours, is
// closed.
func (l *link) receive() {
	defer close(l.gone)
	packet := buffer.NewViewSize(MTU)
	defer func() { packet.Release() }()
	for {
		n, err := l.read(packet.AsSlice())
		if err != nil {
			return
		}
		if !l.admit(packet.AsSlice()[:n]) {
			continue
		}
		if n <= smallPacket {
			l.dispatch(buffer.NewViewWithData(packet.AsSlice()[:n]))
			continue
		}
		packet.CapLength(n)
		l.dispatch(packet)
		packet = buffer.NewViewSize(MTU)
	}
}

// read reads one packet. It returns io.EOF when the guest's end is closed.
func (l *link) read(packet []byte) (n int, err error) {
	waitErr := l.socket.Read(func(fd uintptr) bool {
		n, err = retry(func() (int, error) { return unix.Read(int(fd), packet) })
		if n == 0 && err == nil && hungUp(int(fd)) {
			err = io.EOF
		}
		return err != unix.EAGAIN
	})
	return n, errors.Join(waitErr, err)
}

// hungUp tells the end from an empty message, which reads the same.
func hungUp(fd int) bool {
	state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err := retry(func() (int, error) { return unix.Poll(state, 0) })
	return err != nil || state[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}

func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

func (l *link) dispatch(packet *buffer.View) {
	l.mu.RLock()
	dispatcher := l.dispatcher
	l.mu.RUnlock()
	if dispatcher == nil {
		packet.Release()
		return
	}
	protocol := header.IPv4ProtocolNumber
	if packet.AsSlice()[0]>>4 == 6 {
		protocol = header.IPv6ProtocolNumber
	}
	made := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(packet)})
	defer made.DecRef()
	// What does not leave the machine's memory needs no checksum.
	made.RXChecksumValidated = true
	dispatcher.DeliverNetworkPacket(protocol, made)
}

// WritePackets implements stack.LinkWriter.
func (l *link) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	for i, each := range packets.AsSlice() {
		if err := l.write(each.AsSlices()); err != nil {
			return i, &tcpip.ErrNoBufferSpace{}
		}
	}
	return packets.Len(), nil
}

// write sends one packet, and waits until there is room for it.
func (l *link) write(parts [][]byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	var err error
	send := func(fd uintptr) bool {
		_, err = retry(func() (int, error) {
			return unix.SendmsgBuffers(int(fd), parts, nil, nil, unix.MSG_NOSIGNAL)
		})
		return err != unix.EAGAIN
	}
	if closed := l.socket.Control(func(fd uintptr) { send(fd) }); closed != nil {
		return closed
	}
	if err == unix.EAGAIN && !l.stalled {
		_ = l.file.SetWriteDeadline(time.Now().Add(linkPatience))
		err = errors.Join(l.socket.Write(send), err)
	}
	l.stalled = err != nil
	return err
}

// Close implements stack.LinkEndpoint. Whoever reads or writes returns.
func (l *link) Close() { _ = l.file.Close() }

// Wait implements stack.LinkEndpoint.
func (l *link) Wait() {}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(dispatcher stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = dispatcher
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// MTU implements stack.LinkEndpoint.
func (l *link) MTU() uint32 { return l.mtu }

// Capabilities implements stack.LinkEndpoint.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityTXChecksumOffload | stack.CapabilityRXChecksumOffload
}

// ARPHardwareType implements stack.LinkEndpoint.
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// ParseHeader implements stack.LinkEndpoint: packets have no header of the link.
func (l *link) ParseHeader(*stack.PacketBuffer) bool { return true }

// The rest of stack.LinkEndpoint is about link addresses, of which there are none.

func (l *link) AddHeader(*stack.PacketBuffer)    {}
func (l *link) LinkAddress() tcpip.LinkAddress   { return "" }
func (l *link) MaxHeaderLength() uint16          { return 0 }
func (l *link) SetLinkAddress(tcpip.LinkAddress) {}
func (l *link) SetMTU(uint32)                    {}
func (l *link) SetOnCloseAction(func())          {}
