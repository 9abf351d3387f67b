//go:build linux

package guest

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Network is what a sandbox can reach. It is kept by routes: to the host's own addresses, save its loopback, and
// further where the host forwards. It needs root and ip(8); without root there is no network at all.
type Network struct {
	// Everything has a route.
	Everything bool
	// CIDRs are the only ranges with a route, when not everything has one.
	CIDRs []string
}

// connect gives the network namespace of a process a link to the host. It goes away with the namespace.
func connect(pid int, n Network) error {
	routes := n.CIDRs
	if n.Everything {
		routes = []string{"default"}
	}
	if len(routes) == 0 || os.Geteuid() != 0 {
		return nil
	}
	var random [7]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	// The host's end has no address of its own, so that no route means nothing can be reached.
	link := "osb" + hex.EncodeToString(random[:5])
	address := fmt.Sprintf("10.213.%d.%d", random[5], random[6])
	if err := ip(nil,
		"link add "+link+" type veth peer name eth0 netns "+strconv.Itoa(pid),
		"link set "+link+" up",
		"route add "+address+"/32 dev "+link,
	); err != nil {
		return err
	}
	inside := []string{"addr add " + address + "/32 dev eth0", "link set eth0 up"}
	for _, route := range routes {
		if strings.Contains(route, ":") {
			continue // the link has no IPv6
		}
		inside = append(inside, "route add "+route+" dev eth0")
	}
	return ip([]string{"nsenter", "--net", "--target", strconv.Itoa(pid)}, inside...)
}

// ip runs commands of ip(8), behind a prefix that chooses the namespace.
func ip(prefix []string, commands ...string) error {
	argv := append(prefix, "ip", "-batch", "-")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
