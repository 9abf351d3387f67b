// Package egress is a stand-in for the egress sidecar's policy interface: it keeps and reports a policy, with the
// real one's status codes and plain-text errors. It resolves no names and filters no packets.
package egress

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
)

// Port is where the sidecar listens.
const Port = 18080

// Modes of enforcement, set by the operator of the server and readable by clients.
const (
	ModeDNS    = "dns"     // names only; literal addresses pass
	ModeDNSNFT = "dns+nft" // names and addresses
)

const maxRules = 4096

// Rule allows or denies one target.
type Rule struct {
	Action string `json:"action"`
	Target string `json:"target"`
}

// Policy is what a sandbox may reach.
type Policy struct {
	DefaultAction string `json:"defaultAction"`
	Egress        []Rule `json:"egress"`
}

// Sidecar holds the policy of one sandbox.
type Sidecar struct {
	token, enforcement string

	mu     sync.Mutex
	policy Policy
}

// New returns a sidecar that starts with the policy and asks for the token when it is not empty.
func New(policy Policy, token, enforcement string) *Sidecar {
	return &Sidecar{token: token, enforcement: enforcement, policy: normalize(policy)}
}

// normalize turns an absent default into deny: an empty policy means that nothing is reachable.
func normalize(p Policy) Policy {
	if p.DefaultAction == "" {
		p.DefaultAction = "deny"
	}
	if p.Egress == nil {
		p.Egress = []Rule{}
	}
	return p
}

// Status is the body of GET /policy.
type Status struct {
	Status          string `json:"status"`
	Mode            string `json:"mode"`
	EnforcementMode string `json:"enforcementMode"`
	Policy          Policy `json:"policy"`
}

// Status reports the policy in force.
func (s *Sidecar) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	mode := "enforcing"
	switch {
	case s.policy.DefaultAction == "allow":
		mode = "allow_all"
	case len(s.policy.Egress) == 0:
		mode = "deny_all"
	}
	return Status{Status: "ok", Mode: mode, EnforcementMode: s.enforcement, Policy: s.policy}
}

// ServeHTTP serves /policy and /healthz.
func (s *Sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		_, _ = io.WriteString(w, "ok")
		return
	}
	if s.token != "" && r.Header.Get("OPENSANDBOX-EGRESS-AUTH") != s.token {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	if r.URL.Path != "/policy" {
		http.NotFound(w, r)
		return
	}
	var err error
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost, http.MethodPut:
		err = s.replace(r.Body)
	case http.MethodPatch:
		err = s.patch(r.Body)
	case http.MethodDelete:
		err = s.remove(r.Body)
	default:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Status())
}

func (s *Sidecar) replace(body io.Reader) error {
	var p Policy
	if err := json.NewDecoder(io.LimitReader(body, 1<<20)).Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(p.Egress) > maxRules {
		return errors.New("too many egress rules")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = normalize(p)
	return nil
}

// patch puts new rules first; a rule for a known target replaces the old one.
func (s *Sidecar) patch(body io.Reader) error {
	var rules []Rule
	if err := json.NewDecoder(io.LimitReader(body, 1<<20)).Decode(&rules); err != nil {
		return err
	}
	if len(rules) == 0 {
		return errors.New("no rules given")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.policy.Egress {
		if !slices.ContainsFunc(rules, func(r Rule) bool { return r.Target == old.Target }) {
			rules = append(rules, old)
		}
	}
	s.policy.Egress = rules
	return nil
}

func (s *Sidecar) remove(body io.Reader) error {
	var targets []string
	if err := json.NewDecoder(io.LimitReader(body, 1<<20)).Decode(&targets); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy.Egress = slices.DeleteFunc(s.policy.Egress, func(r Rule) bool { return slices.Contains(targets, r.Target) })
	return nil
}
