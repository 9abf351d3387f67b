package conformance

import (
	"net"
	"strconv"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func networkCases() []Case {
	return []Case{
		{
			ID: "network.none", Group: GroupNetwork, Needs: []Need{needsNetworkNone}, run: checkNetworkNone,
			Reason: "no network means that nothing gets out: TCP, UDP or names",
			Source: "airflow 84; design 1",
		},
		{
			ID: "network.open", Group: GroupNetwork, Needs: []Need{needsNetworkOpen}, run: checkNetworkOpen,
			Reason: "an open network reaches other machines",
			Source: "design 3",
		},
		{
			ID: "network.open-not-host", Group: GroupNetwork, Needs: []Need{needsNetworkOpen}, run: checkNotHost,
			Reason: "an open network does not reach the host's own loopback, nor the cloud's credentials",
			Source: "airflow 91; design 8",
		},
		{
			ID: "network.allow-cidrs", Group: GroupNetwork, Needs: []Need{needsAllowCIDRs}, Limit: 2 * time.Minute, run: checkAllowCIDRs,
			Reason: "what is listed is reached, what is not listed is not",
			Source: "airflow 86",
		},
		{
			ID: "network.allow-hosts", Group: GroupNetwork, Needs: []Need{needsAllowHosts}, run: checkAllowHosts,
			Reason: "a listed name is reached on port 443",
			Source: "airflow 85",
		},
		{
			ID: "network.allow-hosts-only", Group: GroupNetwork, Needs: []Need{needsAllowHosts}, run: checkAllowHostsOnly,
			Reason: "what is not listed, an address above all, is not reached",
			Source: "airflow 85",
		},
		{
			ID: "network.access-log", Group: GroupNetwork, Needs: []Need{needsAccessLog, needsAllowCIDRs}, run: checkAccessLog,
			Reason: "who asks why something cannot be reached finds the answer",
			Source: "design 8",
		},
		{
			ID: "network.reported", Group: GroupNetwork, run: checkNetworkReported,
			Reason: "the policy that is shown must be the one in force",
			Source: "airflow 90, 99",
		},
	}
}

// withNetwork is a sandbox with a policy.
func (t *T) withNetwork(policy plugin.NetworkPolicy) *box {
	return t.fresh(func(spec *plugin.SandboxSpec) { spec.Network = policy })
}

// outside are addresses on the internet that answer.
var outside = []string{"1.1.1.1:443", "8.8.8.8:443"}

const metadata = "169.254.169.254:80"

func checkNetworkNone(t *T) {
	here := t.listen()
	box := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkNone})
	addresses := append(append(here.addresses("127.0.0.1"), outside...), metadata)
	for _, address := range box.connectAll(addresses) {
		t.Errorf("a sandbox without a network reached %s", address)
	}
	box.sendDatagrams(here.addresses("127.0.0.1"))
	if n := here.reached(); n != 0 {
		t.Errorf("%d connections or datagrams from a sandbox without a network arrived", n)
	}
	if box.resolves("example.com") {
		t.Errorf("a sandbox without a network resolved example.com")
	}
}

// reachable finds an address that a sandbox with an open network reaches, or, when the
// driver has no such network, one that this machine reaches.
func (t *T) reachable(here *listeners) (address string, found bool) {
	candidates := append(here.addresses(), outside...)
	if t.info().Capabilities.Network.Open {
		reached := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkOpen}).connectAll(candidates)
		if len(reached) > 0 {
			return reached[0], true
		}
		return "", false
	}
	for _, address := range candidates {
		if t.dials(address) {
			return address, true
		}
	}
	return "", false
}

func (t *T) dials(address string) bool {
	dialer := net.Dialer{Timeout: 3 * time.Second}
	connection, err := dialer.DialContext(t.ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func checkNetworkOpen(t *T) {
	if _, found := t.reachable(t.listen()); found {
		return
	}
	if t.dials(outside[0]) {
		t.Errorf("a sandbox with an open network reached neither %s, which this machine does, nor this machine", outside[0])
		return
	}
	t.Skipf("there is nothing to reach: this machine has no internet, and the guest does not reach this machine")
}

func checkNotHost(t *T) {
	here := t.listenLoopback()
	box := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkOpen})
	addresses := []string{here.at("127.0.0.1"), here.at("localhost"), metadata}
	for _, gateway := range box.gateways() {
		addresses = append(addresses, here.at(gateway))
	}
	for _, address := range box.connectAll(addresses) {
		if address == metadata && t.dials(metadata) || address != metadata && here.reached() > 0 {
			t.Errorf("a sandbox with an open network reached %s of the host", address)
		}
	}
}

func checkAllowCIDRs(t *T) {
	here := t.listen()
	address, found := t.reachable(here)
	if !found {
		t.Skipf("there is nothing to reach, so that allowing it could be seen")
	}
	host, _, _ := net.SplitHostPort(address)
	if net.ParseIP(host).To4() == nil {
		t.Skipf("only %s can be reached, which is not IPv4", address)
	}
	listed := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{host + "/32"}})
	if len(listed.connectAll([]string{address})) == 0 {
		t.Errorf("%s was not reached though %s/32 is allowed", address, host)
	}
	before := here.reached()
	other := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{"203.0.113.0/24"}})
	for _, reached := range other.connectAll(append(here.addresses(), address)) {
		t.Errorf("%s was reached though only 203.0.113.0/24 is allowed", reached)
	}
	other.sendDatagrams(here.addresses())
	if n := here.reached() - before; n != 0 {
		t.Errorf("%d connections or datagrams arrived though only 203.0.113.0/24 is allowed", n)
	}
}

func checkAllowHosts(t *T) {
	const name = "example.com"
	if !t.dials(name + ":443") {
		t.Skipf("this machine does not reach %s:443", name)
	}
	box := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{name}})
	if !box.speaksTLS(name) {
		t.Errorf("%s:443 was not reached though it is allowed", name)
	}
}

func checkAllowHostsOnly(t *T) {
	here := t.listen()
	box := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"example.com"}})
	// With SNI or a proxy a connection may come about; then no TLS with another name may.
	if t.info().Capabilities.Network.AllowHosts == plugin.MatchAddress {
		for _, address := range box.connectAll(append(here.addresses(), outside...)) {
			t.Errorf("%s was reached though only example.com is allowed", address)
		}
	} else if t.dials("one.one.one.one:443") && box.speaksTLS("one.one.one.one") {
		t.Errorf("one.one.one.one:443 was reached though only example.com is allowed")
	}
	box.sendDatagrams(here.addresses())
	if n := here.reached(); n != 0 {
		t.Errorf("%d connections or datagrams arrived though only example.com is allowed", n)
	}
}

func checkAccessLog(t *T) {
	box := t.withNetwork(plugin.NetworkPolicy{Mode: plugin.NetworkAllow, CIDRs: []string{"192.0.2.0/24"}})
	const address, target = "203.0.113.77", "203.0.113.77:443"
	box.connectAll([]string{target, target})
	log, err := t.driver().AccessLog(t.ctx, box.ref)
	if err != nil {
		t.Errorf("the access log cannot be read: %v", err)
		return
	}
	var attempts uint64
	for _, access := range log {
		if access.Address != address || access.Port != 443 {
			continue
		}
		attempts += access.Count
		if access.Verdict != plugin.AccessRefused || access.Protocol != "tcp" || access.Reason == "" {
			t.Errorf("a refused connection to %s is in the log as %+v", target, access)
		}
	}
	if attempts == 0 {
		t.Errorf("a refused connection to %s is not in the log, which has %d entries", target, len(log))
	}
	if _, err := t.driver().AccessLog(t.ctx, plugin.Ref{ID: "sb-" + random(12)}); plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("the log of a sandbox that does not exist: %v, want not found", err)
	}
}

func checkNetworkReported(t *T) {
	network := t.info().Capabilities.Network
	policies := map[bool]plugin.NetworkPolicy{}
	if network.None {
		policies[true] = plugin.NetworkPolicy{Mode: plugin.NetworkNone}
	}
	if network.Open {
		policies[false] = plugin.NetworkPolicy{Mode: plugin.NetworkOpen}
	}
	for _, policy := range policies {
		box := t.withNetwork(policy)
		if box.sandbox.Network.Mode != policy.Mode {
			t.Errorf("a sandbox with network %s is reported with %q", policy.Mode, box.sandbox.Network.Mode)
		}
		if row := t.row(box.ref.ID); row != nil && row.Network.Mode != policy.Mode {
			t.Errorf("a sandbox with network %s is listed with %q", policy.Mode, row.Network.Mode)
		}
	}
}

func port(address net.Addr) string {
	switch a := address.(type) {
	case *net.TCPAddr:
		return strconv.Itoa(a.Port)
	case *net.UDPAddr:
		return strconv.Itoa(a.Port)
	}
	return ""
}
