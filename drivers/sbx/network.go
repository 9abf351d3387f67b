package sbx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Every connection of a guest goes through sbx's proxy, which asks the rules: those
// for all sandboxes, those of this sandbox, and those of its agent kit. A deny beats
// every allow, and what nothing allows is denied.

// everywhere is sbx's resource for every host.
const everywhere = "**"

// credentialHosts hand out a cloud machine's credentials to whoever asks from it. No
// sandbox gets to them: with an open network they are denied.
var credentialHosts = []string{"169.254.169.254", "metadata.google.internal"}

// probeTarget is a host that no preset and no kit knows.
const probeTarget = "sandboxctl-probe.example.com:443"

// rule is one of `sbx policy ls --json`.
type rule struct {
	AppliesTo string   `json:"applies_to"`
	Scope     string   `json:"scope"`
	Type      string   `json:"resource_type"`
	Decision  string   `json:"decision"`
	Resources []string `json:"resources"`
	Origin    string   `json:"origin"`
	Status    string   `json:"status"`
}

// rules are the network rules that a sandbox is subject to.
type rules []rule

// rules lists what applies to a sandbox, or to all when the name is empty. sbx lists
// rules of others for a name that it does not know (docker/sbx-releases#472), so they
// are picked here.
func (p *program) rules(ctx context.Context, name string) (rules, error) {
	args := []string{"policy", "ls"}
	if name != "" {
		args = append(args, name)
	}
	out, err := p.must(ctx, "read the network policy", append(args, "--json")...)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Rules json.RawMessage `json:"rules"`
	}
	var all []rule
	err = firstJSON(out.stdout, &answer)
	if err == nil && answer.Rules == nil {
		err = errors.New("it has no list of rules") // which is not a list without rules
	}
	if err == nil {
		err = json.Unmarshal(answer.Rules, &all)
	}
	if err != nil {
		return nil, plugin.Errorf(plugin.KindUnavailable, "cannot read the answer of `sbx policy ls --json`: %w", err)
	}
	others, err := p.others(ctx, name, all)
	if err != nil {
		return nil, err
	}
	var mine rules
	for _, r := range all {
		network := r.Type == "" || strings.HasPrefix(strings.ToLower(r.Type), "net")
		if network && !strings.EqualFold(r.Status, "inactive") && (!r.scoped() || name != "" && !others[r.sandbox()]) {
			mine = append(mine, r)
		}
	}
	return mine, nil
}

// others are the sandboxes besides this one that rules are for. What stands in a rule
// need not be a name; nobody has published it. A rule that is for none of the others
// counts as ours, so that an allow is never overlooked.
func (p *program) others(ctx context.Context, name string, all []rule) (map[string]bool, error) {
	foreign := func(r rule) bool { return r.scoped() && r.sandbox() != name }
	if name == "" || !slices.ContainsFunc(all, foreign) {
		return nil, nil
	}
	entries, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	others := map[string]bool{}
	for _, r := range all {
		if _, exists := entries[r.sandbox()]; exists && foreign(r) {
			others[r.sandbox()] = true
		}
	}
	return others, nil
}

// sandbox reads the two ways in which a rule says for whom it is; "" is for all.
func (r rule) sandbox() string {
	for _, scope := range []string{r.AppliesTo, r.Scope} {
		if of, scoped := strings.CutPrefix(scope, "sandbox:"); scoped {
			return of
		}
	}
	return ""
}

func (r rule) scoped() bool { return r.sandbox() != "" }

// resources are what the rules of one decision name; scoped ones only, if asked.
func (rs rules) resources(decision string, scopedOnly bool) []string {
	var all []string
	for _, r := range rs {
		if r.Decision == decision && (r.scoped() || !scopedOnly) {
			all = append(all, r.Resources...)
		}
	}
	return all
}

// checkNetwork refuses, before anything is made, a policy that this host's sbx would
// not keep.
func (d *Driver) checkNetwork(ctx context.Context, p *program, policy plugin.NetworkPolicy) error {
	for _, host := range policy.Hosts {
		if err := checkHost(host); err != nil {
			return err
		}
	}
	global, err := p.rules(ctx, "")
	if err != nil {
		return err
	}
	allowed, denied := global.resources("allow", false), global.resources("deny", false)
	switch policy.Mode {
	case plugin.NetworkNone:
		if !p.features.DenyNetwork && len(allowed) > 0 {
			return plugin.Refusedf("--network", "sbx %s cannot cut off a single sandbox from the network, and this machine's policy allows %s", p.features.Version, some(allowed)).
				WithHint("Upgrade sbx to 0.38 or later; or make the machine's policy deny-all: `sbx policy reset`, which stops all sandboxes, then `sbx policy init deny-all`.")
		}
	case plugin.NetworkAllow:
		if extra := without(allowed, policy.Hosts); len(extra) > 0 {
			return plugin.Refusedf("--allow-host", "a sandbox would reach more than the hosts that were asked for: this machine's sbx policy allows %s to every sandbox", some(extra)).
				WithHint("Make the machine's policy deny-all: `sbx policy reset`, which stops all sandboxes, then `sbx policy init deny-all`.")
		}
		if len(denied) > 0 {
			return refuseDenied("--allow-host", denied)
		}
	case plugin.NetworkOpen:
		if len(denied) > 0 {
			return refuseDenied("--network", denied)
		}
	}
	return nil
}

func refuseDenied(option string, denied []string) *plugin.Error {
	return plugin.Refusedf(option, "this machine's sbx policy denies %s to every sandbox, whatever else is allowed", some(denied)).
		WithHint("Remove the rule: `sbx policy rm network --resource %s`.", denied[0])
}

// checkHost refuses names that mean something else to sbx, or whose rules it is
// known not to enforce.
func checkHost(host string) error {
	lower := strings.TrimSuffix(strings.ToLower(host), ".")
	_, err := netip.ParseAddr(lower)
	switch {
	case err == nil:
		return plugin.Refusedf("--allow-host", "%s is an address, and sbx's rules on those are not known to be kept", host).
			WithHint("Give a name in DNS.")
	case overlap(lower, "host.docker.internal") || lower == "localhost" || strings.HasSuffix(lower, ".localhost"):
		return plugin.Refusedf("--allow-host", "%s is this machine as the sandbox sees it, and sbx does not keep rules for that (docker/sbx-releases#546)", host).
			WithHint("Reach a service of this machine by a name in DNS, or copy the data with sandboxctl cp.")
	}
	if strings.ContainsAny(strings.TrimPrefix(host, "*."), ":/,@ *\x00") || host == "" || host[0] == '-' {
		return plugin.Errorf(plugin.KindInvalid, "%q is not a host name: sbx would store it as a rule that never matches, or that matches more", host)
	}
	return nil
}

// enforce makes the rules of a running sandbox what its record asks for, and reads
// them back. Rules of one sandbox can be lost when it stops (docker/sbx-releases#311),
// so this is done at every start of the guest, before a command runs.
func (d *Driver) enforce(ctx context.Context, p *program, rec *record) error {
	now, err := p.rules(ctx, rec.Sandbox)
	if err != nil {
		return err
	}
	switch rec.Network.Mode {
	case plugin.NetworkNone:
		err = d.enforceNone(ctx, p, rec, now)
	case plugin.NetworkAllow:
		err = d.enforceAllow(ctx, p, rec, now)
	case plugin.NetworkOpen:
		err = d.enforceOpen(ctx, p, rec, now)
	}
	return err
}

func (d *Driver) enforceNone(ctx context.Context, p *program, rec *record, now rules) error {
	if !slices.Contains(now.resources("deny", false), everywhere) {
		if err := p.addRules(ctx, "deny", rec.Sandbox, []string{everywhere}); err != nil {
			return err
		}
	}
	return p.expect(ctx, rec, "--network", probeTarget, false)
}

func (d *Driver) enforceOpen(ctx context.Context, p *program, rec *record, now rules) error {
	if !slices.Contains(now.resources("allow", false), everywhere) {
		if err := p.addRules(ctx, "allow", rec.Sandbox, []string{everywhere}); err != nil {
			return err
		}
	}
	if err := p.addRules(ctx, "deny", rec.Sandbox, without(credentialHosts, now.resources("deny", false))); err != nil {
		return err
	}
	if err := p.expect(ctx, rec, "--network", credentialHosts[0]+":80", false); err != nil {
		return err
	}
	return p.expect(ctx, rec, "--network", probeTarget, true)
}

// enforceAllow adds an allow rule for every host, and a deny rule for everything that
// the agent kit allows besides (docker/sbx-releases#72).
func (d *Driver) enforceAllow(ctx context.Context, p *program, rec *record, now rules) error {
	hosts := rec.Network.Hosts
	if extra := without(without(now.resources("allow", false), hosts), now.resources("deny", false)); len(extra) > 0 {
		for _, resource := range extra {
			for _, host := range hosts {
				if overlap(resource, host) {
					return plugin.Refusedf("--allow-host", "the agent kit of sbx allows %s, which cannot be taken away without taking away %s", resource, host)
				}
			}
		}
		if err := p.addRules(ctx, "deny", rec.Sandbox, extra); err != nil {
			return err
		}
	}
	if missing := without(hosts, now.resources("allow", true)); len(missing) > 0 {
		if err := p.addRules(ctx, "allow", rec.Sandbox, missing); err != nil {
			return err
		}
	}
	after, err := p.rules(ctx, rec.Sandbox)
	if err != nil {
		return err
	}
	allowed := without(after.resources("allow", false), after.resources("deny", false))
	if extra := without(allowed, hosts); len(extra) > 0 {
		return plugin.Refusedf("--allow-host", "sandbox %s can reach %s although that was not asked for", rec.ID, some(extra))
	}
	for _, host := range hosts {
		target := strings.Replace(host, "*.", "sandboxctl-probe.", 1) + ":443"
		if err := p.expect(ctx, rec, "--allow-host", target, true); err != nil {
			return err
		}
	}
	return p.expect(ctx, rec, "--allow-host", probeTarget, false)
}

// addRules adds rules of one sandbox. sbx takes all resources as one argument, and
// rejects the whole batch when one is there already; they are added one by one so
// that a rule that another process added meanwhile does no harm.
func (p *program) addRules(ctx context.Context, decision, name string, resources []string) error {
	for _, resource := range resources {
		out, err := p.run(ctx, "policy", decision, "network", "--sandbox", name, resource)
		if err != nil {
			return err
		}
		said := strings.ToLower(out.text())
		if out.code != 0 && !strings.Contains(said, "duplicate rule") && !strings.Contains(said, "already covered") {
			return explain(fmt.Sprintf("%s %s for sandbox %s", decision, resource, name), out.text())
		}
	}
	return nil
}

// expect asks sbx for its verdict on one connection. The exit code of a denial is
// not documented; the answer is.
func (p *program) expect(ctx context.Context, rec *record, option, target string, want bool) error {
	out, err := p.run(ctx, "policy", "check", "network", "--sandbox", rec.Sandbox, "--json", target)
	if err != nil {
		return err
	}
	var answer struct {
		Allowed *bool `json:"allowed"`
	}
	if err := firstJSON(out.stdout, &answer); err != nil || answer.Allowed == nil {
		return explain(fmt.Sprintf("check the network policy of sandbox %s", rec.ID), out.text())
	}
	if *answer.Allowed == want {
		return nil
	}
	host, _, _ := strings.Cut(target, ":")
	if want {
		return plugin.Refusedf(option, "sbx does not let sandbox %s reach %s, although its rules were set: a rule of this machine or of your organisation overrides them", rec.ID, host).
			WithHint("Look at `sbx policy ls --include-inactive`. For --network open without such rules, allow all for all sandboxes: `sbx policy allow network %q`.", everywhere)
	}
	return plugin.Refusedf(option, "sbx lets sandbox %s reach %s, although its rules deny it", rec.ID, host).
		WithHint("Look at `sbx policy ls` and `sbx policy check network --sandbox NAME HOST`.")
}

// overlap says whether two resources can match the same host.
func overlap(a, b string) bool {
	hostOf := func(resource string) string {
		host, _, _ := strings.Cut(resource, ":")
		return host
	}
	a, b = hostOf(a), hostOf(b)
	if a == b || a == everywhere || b == everywhere {
		return true
	}
	suffixA, wildA := strings.CutPrefix(a, "*.")
	suffixB, wildB := strings.CutPrefix(b, "*.")
	under := func(host, suffix string) bool { return strings.HasSuffix(host, "."+suffix) }
	return wildA && (under(b, suffixA) || wildB && suffixA == suffixB) || wildB && under(a, suffixB) || wildA && wildB && (under(suffixA, suffixB) || under(suffixB, suffixA))
}

func without(all, removed []string) []string {
	var kept []string
	for _, one := range all {
		if !slices.Contains(removed, one) && !slices.Contains(kept, one) {
			kept = append(kept, one)
		}
	}
	return kept
}

// some names a few entries of a list.
func some(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}
