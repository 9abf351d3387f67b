package sbx

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	allowAll = sbxdouble.PresetAllowAll
	balanced = sbxdouble.PresetBalanced
	denyAll  = sbxdouble.PresetDenyAll
)

// What a policy means depends on the machine's preset and on sbx's version. Either a
// sandbox reaches what was asked for and nothing else, or there is none.
func TestNetworkModes(t *testing.T) {
	const wildcardWorks, kitAllows, scopesByID = 1 << 3, 1 << 4, 1 << 13
	hosts := []string{"example.com", "*.example.org"}
	tests := []struct {
		name       string
		generation string
		preset     string
		seed       int64
		mode       plugin.NetworkMode
		refused    string // part of the error; empty when it has to work
	}{
		{"none", sbxdouble.Gen039, denyAll, 0, plugin.NetworkNone, ""},
		{"none on an open machine", sbxdouble.Gen039, allowAll, 0, plugin.NetworkNone, ""},
		{"none beside a kit that allows", sbxdouble.Gen045, balanced, kitAllows, plugin.NetworkNone, ""},
		{"none by an old version", sbxdouble.Gen035, denyAll, kitAllows, plugin.NetworkNone, ""},
		{"none by an old version on an open machine", sbxdouble.Gen035, allowAll, 0, plugin.NetworkNone, "Upgrade sbx to 0.38 or later"},
		{"none by an old version with the baseline", sbxdouble.Gen035, balanced, 0, plugin.NetworkNone, "sbx policy init deny-all"},
		{"list", sbxdouble.Gen035, denyAll, 0, plugin.NetworkAllow, ""},
		{"list beside a kit that allows", sbxdouble.Gen042, denyAll, kitAllows, plugin.NetworkAllow, ""},
		{"list beside a kit whose rules name no sandbox", sbxdouble.Gen042, denyAll, kitAllows | scopesByID, plugin.NetworkAllow, ""},
		{"list with the baseline", sbxdouble.Gen042, balanced, 0, plugin.NetworkAllow, "api.anthropic.com"},
		{"list on an open machine", sbxdouble.Gen042, allowAll, 0, plugin.NetworkAllow, "sbx policy init deny-all"},
		{"open", sbxdouble.Gen045, denyAll, wildcardWorks, plugin.NetworkOpen, ""},
		{"open on an open machine", sbxdouble.Gen045, allowAll, 0, plugin.NetworkOpen, ""},
		{"open where a wildcard has no effect", sbxdouble.Gen045, denyAll, 0, plugin.NetworkOpen, "sbx policy allow network"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, sbxdouble.Config{Generation: test.generation, Preset: test.preset, Seed: test.seed})
			spec := newSpec(test.mode)
			if test.mode == plugin.NetworkAllow {
				spec.Network.Hosts = hosts
			}
			sandbox, err := b.Create(t.Context(), spec, &events{})
			if test.refused != "" {
				wantError(t, err, plugin.KindRefused, test.refused)
				b.nothingLeft()
				if test.refused != "sbx policy allow network" && len(b.called("create", "--quiet")) > 0 {
					t.Error("it was refused after a sandbox had been made")
				}
				return
			}
			if err != nil {
				t.Fatal(told(err))
			}
			for _, host := range []string{"example.com", "www.example.org", "pkg.example.net", "kit.example.com", "elsewhere.net", "169.254.169.254"} {
				want := test.mode == plugin.NetworkOpen && host != "169.254.169.254" || test.mode == plugin.NetworkAllow && (host == "example.com" || host == "www.example.org")
				if got := b.reaches(string(sandbox.Handle), host); got != want {
					t.Errorf("%s reachable: %v, want %v", host, got, want)
				}
			}
		})
	}
}

func TestNetworkThatIsNotKept(t *testing.T) {
	hosts := []string{"example.com"}
	for name, test := range map[string]struct {
		config sbxdouble.Config
		spec   *plugin.SandboxSpec
		text   string
	}{
		"rules are dropped, allow":  {sbxdouble.Config{DropRules: true}, newSpec(plugin.NetworkAllow, hosts...), "does not let"},
		"rules are dropped, none":   {sbxdouble.Config{DropRules: true, KitAllows: []string{"*.example.com"}}, newSpec(plugin.NetworkNone), "lets sandbox"},
		"organisation governs":      {sbxdouble.Config{OrgGovernance: true}, newSpec(plugin.NetworkAllow, hosts...), "organisation"},
		"kit allows more, overlaps": {sbxdouble.Config{KitAllows: []string{"*.com"}}, newSpec(plugin.NetworkAllow, hosts...), "agent kit"},
	} {
		b := newBench(t, test.config)
		_, err := b.Create(t.Context(), test.spec, &events{})
		if plugin.KindOf(err) != plugin.KindRefused || !strings.Contains(told(err), test.text) {
			t.Errorf("%s: %v", name, err)
		}
		b.nothingLeft()
	}
}

func TestHostsThatMeanSomethingElse(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	for host, kind := range map[string]plugin.Kind{
		"host.docker.internal": plugin.KindRefused, "localhost": plugin.KindRefused,
		"https://example.com": plugin.KindInvalid, "example.com:443": plugin.KindInvalid, "a.com,b.com": plugin.KindInvalid, "": plugin.KindInvalid,
		"Host.Docker.Internal": plugin.KindRefused, "*.docker.internal": plugin.KindRefused, "LOCALHOST.": plugin.KindRefused, "127.0.0.1": plugin.KindRefused,
		"**": plugin.KindRefused, "*": plugin.KindInvalid, "a.*.com": plugin.KindInvalid, "*.*.com": plugin.KindInvalid, "-h": plugin.KindInvalid,
	} {
		_, err := b.Create(t.Context(), newSpec(plugin.NetworkAllow, host), &events{})
		if plugin.KindOf(err) != kind {
			t.Errorf("%q: %v", host, err)
		}
	}
	b.nothingLeft()
}

func TestGlobalDenyIsRefused(t *testing.T) {
	b := newBench(t, sbxdouble.Config{Seed: allYes})
	b.sbx("policy", "deny", "network", "example.com")
	for _, spec := range []*plugin.SandboxSpec{newSpec(plugin.NetworkAllow, "example.com"), newSpec(plugin.NetworkOpen)} {
		_, err := b.Create(t.Context(), spec, &events{})
		wantError(t, err, plugin.KindRefused, "example.com", "sbx policy rm network --resource example.com")
	}
	b.create(newSpec(plugin.NetworkNone))
}

// sbx rejects a second positional argument and a whole batch with one duplicate.
func TestRulesAreGivenOneByOne(t *testing.T) {
	b := newBench(t, sbxdouble.Config{})
	ref := b.create(newSpec(plugin.NetworkAllow, "a.com", "b.com", "c.com"))
	calls := b.called("policy", "allow")
	if len(calls) != 3 {
		t.Fatalf("%v", calls)
	}
	for _, call := range calls {
		if !slices.Equal(call.Args[:len(call.Args)-1], []string{"policy", "allow", "network", "--sandbox", string(ref.Handle)}) {
			t.Errorf("%q", call.Args)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"a.com", "a.com", true}, {"a.com", "b.com", false}, {"**", "b.com", true}, {"*.a.com", "x.a.com", true}, {"x.a.com", "*.a.com", true},
		{"*.a.com", "a.com", false}, {"*.a.com", "*.x.a.com", true}, {"*.x.a.com", "*.a.com", true}, {"*.a.com", "*.b.com", false},
		{"a.com:443", "a.com", true}, {"*.ba.com", "x.a.com", false},
	} {
		if got := overlap(test.a, test.b); got != test.want {
			t.Errorf("%s and %s: %v", test.a, test.b, got)
		}
	}
}
