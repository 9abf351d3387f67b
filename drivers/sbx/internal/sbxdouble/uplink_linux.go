package sbxdouble

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A guest that does not use the proxy on purpose meets it all the same: its only way
// out is a network device whose other end is a TCP/IP stack in this process, which
// takes every TCP connection and asks the rules. UDP and ICMP go nowhere.

const (
	uplinkDevice = "tun0"
	uplinkMTU    = 1500
	uplinkNIC    = 1
)

var uplinkAddress = [4]byte{10, 201, 0, 2}

// startUplink joins the machine to the stack. It is called before the machine leaves
// the host's root, where the device node is.
func (p *proxy) startUplink() error {
	fd, err := tun.Open(uplinkDevice)
	if err != nil {
		return fmt.Errorf("sbxdouble: open /dev/net/tun: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if err := configureUplink(); err != nil {
		return fmt.Errorf("sbxdouble: configure %s: %w", uplinkDevice, err)
	}
	link, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: uplinkMTU})
	if err != nil {
		return err
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	for _, step := range []func() tcpip.Error{
		func() tcpip.Error { return s.CreateNIC(uplinkNIC, link) },
		func() tcpip.Error { return s.SetPromiscuousMode(uplinkNIC, true) },
		func() tcpip.Error { return s.SetSpoofing(uplinkNIC, true) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("sbxdouble: uplink: %s", err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: uplinkNIC}})
	forwarder := tcp.NewForwarder(s, 0, 1024, p.accept)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	return nil
}

// accept decides on one connection of the guest.
func (p *proxy) accept(request *tcp.ForwarderRequest) {
	id := request.ID()
	host, port := id.LocalAddress.String(), int(id.LocalPort)
	allowed := p.allows(host, port)
	if !allowed && !p.machine.app.config.AcceptDenied {
		request.Complete(true)
		return
	}
	var upstream net.Conn
	if allowed {
		var err error
		if upstream, err = p.dial(net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
			request.Complete(true)
			return
		}
		defer upstream.Close()
	}
	var queue waiter.Queue
	endpoint, err := request.CreateEndpoint(&queue)
	request.Complete(err != nil)
	if err != nil {
		return
	}
	conn := gonet.NewTCPConn(&queue, endpoint)
	defer conn.Close()
	if upstream != nil {
		splice(conn, upstream)
	}
}

// splice relays until one side ends.
func splice(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	_ = a.SetDeadline(time.Now())
	_ = b.SetDeadline(time.Now())
	<-done
}

// configureUplink gives the device its address and makes it the way to everywhere.
func configureUplink() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(uplinkDevice)
	if err != nil {
		return err
	}
	if err := request.SetInet4Addr(uplinkAddress[:]); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, request); err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return err
	}
	return addDefaultRoute(fd)
}

// routeEntry is struct rtentry of <linux/route.h> on 64-bit machines.
type routeEntry struct {
	_                             uint64
	destination, gateway, netmask unix.RawSockaddrInet4
	flags                         uint16
	_                             int16
	_                             uint64
	_                             uintptr
	metric                        int16
	device                        *byte
	mtu, window                   uint64
	irtt                          uint16
}

func addDefaultRoute(fd int) error {
	device, err := unix.BytePtrFromString(uplinkDevice)
	if err != nil {
		return err
	}
	any := unix.RawSockaddrInet4{Family: unix.AF_INET}
	route := routeEntry{destination: any, gateway: any, netmask: any, flags: unix.RTF_UP, device: device}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&route))); errno != 0 {
		return errno
	}
	return nil
}
