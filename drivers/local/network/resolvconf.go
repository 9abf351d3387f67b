package network

import (
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	resolvConfFile = "/etc/resolv.conf"
	// maxNameservers is how many of them C libraries ask.
	maxNameservers = 3
)

// resolvConf follows the host's list of nameservers, which changes with the host's
// networks while sandboxes live on.
type resolvConf struct {
	mu       sync.Mutex
	modified time.Time
	size     int64
	servers  []netip.AddrPort
}

func (r *resolvConf) nameservers() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(resolvConfFile)
	if err != nil {
		return nil
	}
	if r.servers != nil && info.ModTime().Equal(r.modified) && info.Size() == r.size {
		return r.servers
	}
	text, err := os.ReadFile(resolvConfFile)
	if err != nil {
		return r.servers
	}
	r.modified, r.size, r.servers = info.ModTime(), info.Size(), parseResolvConf(string(text))
	return r.servers
}

func parseResolvConf(text string) []netip.AddrPort {
	var servers []netip.AddrPort
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" || len(servers) == maxNameservers {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(addr, 53))
		}
	}
	return servers
}
