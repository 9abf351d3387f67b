package sbxdouble

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// balancedHosts stands for the baseline of the balanced preset.
var balancedHosts = []string{"api.anthropic.com", "*.docker.com", "pkg.example.net", "static.example.net"}

// kitHosts is what the agent kit allows when the seed says that it allows anything.
var kitHosts = []string{"kit.example.com"}

func (p *policyState) init(preset string) {
	p.Preset = preset
	switch preset {
	case PresetAllowAll:
		p.add("", "allow", "**", "local")
	case PresetBalanced:
		for _, host := range balancedHosts {
			p.add("", "allow", host, "local")
		}
	}
}

func (p *policyState) add(sandbox, decision, resource, origin string) rule {
	r := rule{ID: uuid.NewString(), Sandbox: sandbox, Decision: decision, Resource: resource, Origin: origin}
	p.Rules = append(p.Rules, r)
	return r
}

func (p *policyState) has(sandbox, decision, resource string) bool {
	return slices.ContainsFunc(p.Rules, func(r rule) bool {
		return r.Sandbox == sandbox && r.Decision == decision && r.Resource == resource && r.Origin == "local"
	})
}

// dropScoped forgets a sandbox's own rules; keepKit keeps those of its agent kit.
func (p *policyState) dropScoped(sandbox string, keepKit bool) {
	p.Rules = slices.DeleteFunc(p.Rules, func(r rule) bool {
		return r.Sandbox == sandbox && sandbox != "" && !(keepKit && r.Origin == "kit")
	})
}

// active says whether a rule counts: under organisation governance local allow
// rules do not, local denies do.
func (r rule) active(c *Config) bool {
	if c.OrgGovernance && r.Decision == "allow" && r.Origin == "local" {
		return false
	}
	if r.Resource == "**" && r.Sandbox != "" && r.Decision == "allow" && !c.unknowns().WildcardScoped {
		return false
	}
	return true
}

// decide is the verdict on one connection: a deny at any scope beats every
// allow, and what no rule allows is denied.
func (p *policyState) decide(c *Config, sandbox, host string, port int) (bool, *rule) {
	var allowed *rule
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Sandbox != "" && r.Sandbox != sandbox || !r.active(c) || !covers(r.Resource, host, port) {
			continue
		}
		if r.Decision == "deny" && host != "host.docker.internal" {
			return false, r
		}
		if r.Decision == "allow" {
			allowed = r
		}
	}
	return allowed != nil, allowed
}

// covers matches one resource. A URL is stored like any other text and never matches.
func covers(resource, host string, port int) bool {
	if resource == "**" {
		return true
	}
	if _, network, err := net.ParseCIDR(resource); err == nil {
		ip := net.ParseIP(host)
		return ip != nil && network.Contains(ip)
	}
	if h, p, err := net.SplitHostPort(resource); err == nil {
		if p != strconv.Itoa(port) {
			return false
		}
		resource = h
	}
	if suffix, ok := strings.CutPrefix(resource, "*."); ok {
		return strings.HasSuffix(host, "."+suffix)
	}
	return resource == host
}
