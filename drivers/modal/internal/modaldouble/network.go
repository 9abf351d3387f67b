//go:build linux

package modaldouble

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strconv"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// guestDevice is the guest's interface beside its loopback.
const guestDevice = "eth0"

// connect gives a guest a network that goes as far as this machine's
// own addresses. The policy is enforced by routes: what has none is not reached.
// Hosts cannot be matched this way, and stay closed. The host's end of the link
// has no address, so that the guest reaches nothing by the link itself.
func (g *guest) connect(access *pb.NetworkAccess) error {
	routes := routesFor(access)
	ip, err := exec.LookPath("ip")
	if len(routes) == 0 || err != nil || inUserNamespace() {
		return nil
	}
	address, device := randomAddress(), "md"+random("0123456789abcdef", 10)
	outside := [][]string{
		{"link", "add", device, "type", "veth", "peer", "name", guestDevice, "netns", strconv.Itoa(g.init.Process.Pid)},
		{"link", "set", device, "up"},
		{"route", "add", address + "/32", "dev", device},
	}
	if err := runAll(ip, outside); err != nil {
		return err
	}
	inside := [][]string{
		{"link", "set", guestDevice, "up"},
		{"address", "add", address + "/32", "dev", guestDevice},
	}
	for _, route := range routes {
		inside = append(inside, []string{"route", "add", route, "dev", guestDevice, "scope", "link"})
	}
	return g.run(func() error { return runAll(ip, inside) })
}

func routesFor(access *pb.NetworkAccess) []string {
	switch access.GetNetworkAccessType() {
	case pb.NetworkAccess_OPEN, pb.NetworkAccess_UNSPECIFIED:
		return []string{"default"}
	case pb.NetworkAccess_ALLOWLIST:
		return access.GetAllowedCidrs()
	default:
		return nil
	}
}

// randomAddress is from the range that is set aside for tests of networks.
func randomAddress() string {
	n := 1 + rand.Uint32N(1<<17-2)
	return netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)}).String()
}

func runAll(program string, commands [][]string) error {
	for _, args := range commands {
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %q: %w: %s", program, args, err, out)
		}
	}
	return nil
}
