//go:build linux

package opensandbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func none(s *plugin.SandboxSpec) { s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkNone} }

func namesOnly(s *plugin.SandboxSpec) { s.Options = map[string]string{"accept-names-only": "true"} }

func cidr(s *plugin.SandboxSpec) {
	s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"pkg.example.net"}, CIDRs: []string{"10.1.0.0/16"}}
}

func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	for _, proxied := range []bool{false, true} {
		d := startDouble(t, healthy)
		r := newRig(t, d, withSetting("use_server_proxy", proxied))
		ref := r.create(t, none)
		s, err := r.Inspect(t.Context(), ref)
		if err != nil || s.Network.Mode != plugin.NetworkNone {
			t.Errorf("none: %+v, %v", s, err)
		}
		// The probe needs no tools: /proc/net/dev has a line for each interface after two of heading.
		if out := r.exec(t, ref, sh("tail -n +3 /proc/net/dev")).stdout; strings.Count(out, "\n") != 1 || !strings.Contains(out, "lo:") {
			t.Errorf("interfaces: %q", out)
		}
		ref = r.create(t, cidr)
		s, err = r.Inspect(t.Context(), ref)
		if err != nil || s.Network.Mode != plugin.NetworkAllow || !slices.Equal(s.Network.Hosts, []string{"pkg.example.net"}) || !slices.Equal(s.Network.CIDRs, []string{"10.1.0.0/16"}) {
			t.Errorf("allow: %+v, %v", s, err)
		}
		// An open network needs no sidecar, so it works on a server that has none.
		d.Set(func(k *osbdouble.Knobs) { k.NoEgressImage = true })
		r.create(t)
	}
}

// What is not enforced as asked must not be left running.
func TestNetworkIsReadBack(t *testing.T) {
	t.Parallel()
	change := func(f func(egress.Policy) egress.Policy) func(*osbdouble.Knobs) {
		return func(k *osbdouble.Knobs) { k.AlterPolicy = f }
	}
	for name, c := range map[string]struct {
		knob     func(*osbdouble.Knobs)
		spec     []func(*plugin.SandboxSpec)
		mentions string
	}{
		"no sidecar":      {func(k *osbdouble.Knobs) { k.DropPolicy = true }, []func(*plugin.SandboxSpec){none}, "without the network policy"},
		"no egress image": {func(k *osbdouble.Knobs) { k.NoEgressImage = true }, []func(*plugin.SandboxSpec){none}, "[egress]"},
		"allows all":      {change(func(p egress.Policy) egress.Policy { p.DefaultAction = "allow"; return p }), []func(*plugin.SandboxSpec){none}, "default action"},
		"rule added": {change(func(p egress.Policy) egress.Policy {
			p.Egress = append(p.Egress, egress.Rule{Action: "allow", Target: "evil.example"})
			return p
		}), []func(*plugin.SandboxSpec){allow("pkg.example.net")}, "evil.example was added"},
		"rule lost":        {change(func(p egress.Policy) egress.Policy { p.Egress = nil; return p }), []func(*plugin.SandboxSpec){allow("pkg.example.net")}, "pkg.example.net is missing"},
		"names only":       {func(k *osbdouble.Knobs) { k.Enforcement = egress.ModeDNS }, []func(*plugin.SandboxSpec){none}, "--opt accept-names-only=true"},
		"names only hosts": {func(k *osbdouble.Knobs) { k.Enforcement = egress.ModeDNS }, []func(*plugin.SandboxSpec){allow("pkg.example.net")}, "literal addresses"},
		"names only cidr":  {func(k *osbdouble.Knobs) { k.Enforcement = egress.ModeDNS }, []func(*plugin.SandboxSpec){cidr, namesOnly}, "addresses"},
	} {
		for _, proxied := range []bool{false, true} {
			knobs := healthy
			c.knob(&knobs)
			d := startDouble(t, knobs)
			r := newRig(t, d, withSetting("use_server_proxy", proxied))
			_, err := r.Create(t.Context(), newSpec(c.spec...), &events{})
			if plugin.KindOf(err) != plugin.KindRefused {
				t.Errorf("%s: %v", name, err)
				continue
			}
			wantKind(t, err, plugin.KindRefused, c.mentions)
			if ids := d.IDs(); len(ids) != 0 {
				t.Errorf("%s: left %v", name, ids)
			}
		}
	}
}

func TestNamesOnlyIsAccepted(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.Enforcement = egress.ModeDNS
	r := newRig(t, startDouble(t, knobs))
	r.create(t, none, namesOnly)
	r.create(t, allow("pkg.example.net", "*.example.com"), namesOnly)
}

// The order in which a server keeps rules does not matter.
func TestNetworkComparesSets(t *testing.T) {
	t.Parallel()
	knobs := healthy
	knobs.AlterPolicy = func(p egress.Policy) egress.Policy {
		slices.Reverse(p.Egress)
		return p
	}
	r := newRig(t, startDouble(t, knobs))
	r.create(t, allow("a.example", "b.example"))
}
