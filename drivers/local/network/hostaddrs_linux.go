package network

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hostAddrsAge is how old the list of the host's addresses may be.
const hostAddrsAge = time.Second

// hostAddrs knows the addresses of the host's interfaces, which come and go.
type hostAddrs struct {
	mu     sync.Mutex
	read   time.Time
	known  map[netip.Addr]bool
	global bool
}

// owns says whether an address is the host's. Where the host does not tell, every
// address may be.
func (h *hostAddrs) owns(addr netip.Addr) bool {
	h.mu.Lock()
	h.refresh()
	known := h.known == nil || h.known[addr]
	h.mu.Unlock()
	return known || endsHere(addr)
}

// endsHere says whether the kernel would deliver packets for an address to this host,
// or to all of a network's. A route can make it do so for addresses that no interface
// has.
func endsHere(addr netip.Addr) bool {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) {
		// There is no way there at all.
		return false
	}
	if err != nil || len(routes) == 0 {
		return true
	}
	return routes[0].Type != unix.RTN_UNICAST
}

// reachesIPv6 says whether the host has an IPv6 address with which it could reach
// others than its neighbours.
func (h *hostAddrs) reachesIPv6() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refresh()
	return h.global
}

func (h *hostAddrs) refresh() {
	if time.Since(h.read) < hostAddrsAge {
		return
	}
	h.read, h.known, h.global = time.Now(), nil, false
	list, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	h.known = map[netip.Addr]bool{}
	for _, each := range list {
		network, ok := each.(*net.IPNet)
		if !ok {
			continue
		}
		addr, ok := netip.AddrFromSlice(network.IP)
		if !ok {
			continue
		}
		addr = addr.Unmap()
		h.known[addr] = true
		h.global = h.global || addr.Is6() && neverReachable(addr) == "" && !isPrivate(addr)
	}
}
