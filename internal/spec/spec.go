// Package spec is what a user asks of a new sandbox: how it is read, checked against
// what a driver can enforce, and compared with what exists.
package spec

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Spec is a request for a sandbox, apart from its identity.
type Spec struct {
	Image       string
	Env         map[string]string
	Labels      map[string]string
	Workdir     string
	CPUs        float64
	MemoryBytes uint64
	DiskBytes   uint64
	PIDs        uint32
	GPU         string
	Network     plugin.NetworkPolicy
	// TTL is zero for a sandbox that does not expire.
	TTL time.Duration
	// IdleTimeout is zero when not asked for.
	IdleTimeout time.Duration
	Options     map[string]string
}

// ForDriver returns the specification that a driver gets.
func (s *Spec) ForDriver() *plugin.SandboxSpec {
	return &plugin.SandboxSpec{
		Image: s.Image, Env: s.Env, Labels: s.Labels, Workdir: s.Workdir,
		CPUs: s.CPUs, MemoryBytes: s.MemoryBytes, DiskBytes: s.DiskBytes, PIDs: s.PIDs, GPU: s.GPU,
		Network: s.Network, IdleTimeout: s.IdleTimeout, Options: s.Options,
	}
}

// recorded is a Spec as the ledger keeps it: comparable, and without secrets.
type recorded struct {
	Image string `json:"image,omitempty"`
	// Env holds a short keyed digest of each value, enough to notice a change and
	// too little to guess the value from.
	Env         map[string]string    `json:"env,omitempty"`
	Labels      map[string]string    `json:"labels,omitempty"`
	Workdir     string               `json:"workdir,omitempty"`
	CPUs        float64              `json:"cpus,omitempty"`
	MemoryBytes uint64               `json:"memory_bytes,omitempty"`
	DiskBytes   uint64               `json:"disk_bytes,omitempty"`
	PIDs        uint32               `json:"pids,omitempty"`
	GPU         string               `json:"gpu,omitempty"`
	Network     plugin.NetworkPolicy `json:"network"`
	TTL         string               `json:"ttl"`
	IdleTimeout string               `json:"idle_timeout,omitempty"`
	Options     map[string]string    `json:"options,omitempty"`
}

// Canonical returns the JSON that the ledger keeps: equal bytes mean equal requests.
// The key belongs to the ledger.
func (s *Spec) Canonical(key string) (json.RawMessage, error) {
	record := recorded{
		Image: s.Image, Labels: s.Labels, Workdir: s.Workdir, CPUs: s.CPUs, MemoryBytes: s.MemoryBytes,
		DiskBytes: s.DiskBytes, PIDs: s.PIDs, GPU: s.GPU,
		Network: s.Network, TTL: s.TTL.String(), Options: s.Options, Env: map[string]string{},
	}
	if s.IdleTimeout > 0 {
		record.IdleTimeout = s.IdleTimeout.String()
	}
	for name, value := range s.Env {
		digest := hmac.New(sha256.New, []byte(key))
		digest.Write([]byte(name + "=" + value))
		record.Env[name] = hex.EncodeToString(digest.Sum(nil)[:4])
	}
	return json.Marshal(record)
}

// Difference says in words where two recorded requests differ: "image a, not b". It is
// empty when they are equal.
func Difference(existing, wanted json.RawMessage) string {
	var was, want map[string]json.RawMessage
	if json.Unmarshal(existing, &was) != nil || json.Unmarshal(wanted, &want) != nil {
		return "it was created by another version of sandboxctl"
	}
	var parts []string
	for _, field := range slices.Sorted(maps.Keys(union(was, want))) {
		if string(was[field]) == string(want[field]) {
			continue
		}
		if field == "env" {
			parts = append(parts, envDifference(was[field], want[field]))
			continue
		}
		parts = append(parts, fmt.Sprintf("%s is %s, not %s", field, orNone(was[field]), orNone(want[field])))
	}
	return strings.Join(parts, "; ")
}

// envDifference names variables and never shows digests.
func envDifference(existing, wanted json.RawMessage) string {
	was, want := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	_ = json.Unmarshal(existing, &was)
	_ = json.Unmarshal(wanted, &want)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(union(was, want))) {
		if string(was[name]) != string(want[name]) {
			names = append(names, name)
		}
	}
	return "env differs in " + strings.Join(names, ", ")
}

func union(a, b map[string]json.RawMessage) map[string]json.RawMessage {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func orNone(value json.RawMessage) string {
	if len(value) == 0 {
		return "unset"
	}
	return string(value)
}
