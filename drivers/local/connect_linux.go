package local

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/sandboxctl/sandboxctl/drivers/local/network"
)

// createLinks is gVisor's call that gives a running sandbox's network stack an interface.
const createLinks = "Network.CreateLinksAndRoutes"

// connect gives a running sandbox its end of the network, as its only interface but the
// loopback. There is no namespace and no device on the host: what the guest sends goes
// through the socket to the keeper, and there is nothing else that it could go to.
func (s sandbox) connect(ctx context.Context, guests *os.File) error {
	dir, err := os.Open(s.runscRoot())
	if err != nil {
		return err
	}
	defer dir.Close()
	// The path of a socket may have 107 bytes, that of a state directory has no limit.
	control, err := client.ConnectTo(fmt.Sprintf("/proc/self/fd/%d/runsc-%s.sock", dir.Fd(), s.id))
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() { result <- control.Call(createLinks, guestLink(guests), nil) }()
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	// It ends a call that is not answered.
	_ = control.Close()
	return err
}

func guestLink(guests *os.File) *boot.CreateLinksAndRoutesArgs {
	link := boot.FDBasedLink{
		Name: "eth0", MTU: network.MTU, NumChannels: 1, ProcessorsPerChannel: 1,
		// The sandbox's system call filter, already in force, would not let it look.
		PreConfigured: true, IsPacket: []bool{false},
		// Nothing between the two ends can damage a packet.
		TXChecksumOffload: true, RXChecksumOffload: true,
	}
	for _, each := range []struct {
		guest   netip.Prefix
		gateway netip.Addr
	}{{network.GuestIPv4, network.GatewayIPv4}, {network.GuestIPv6, network.GatewayIPv6}} {
		everything := netip.PrefixFrom(each.guest.Addr(), 0).Masked()
		link.Addresses = append(link.Addresses, boot.IPWithPrefix{Address: each.guest.Addr().AsSlice(), PrefixLen: each.guest.Bits()})
		link.Routes = append(link.Routes, boot.Route{
			Destination: net.IPNet{IP: everything.Addr().AsSlice(), Mask: net.CIDRMask(0, everything.Addr().BitLen())},
			Gateway:     each.gateway.AsSlice(),
		})
	}
	return &boot.CreateLinksAndRoutesArgs{
		FilePayload:  urpc.FilePayload{Files: []*os.File{guests}},
		FDBasedLinks: []boot.FDBasedLink{link},
	}
}
