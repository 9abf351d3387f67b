//go:build linux

package osbdouble

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/guest"
)

// sandbox is what the server knows about one sandbox; the double's lock guards it.
type sandbox struct {
	id, image    string
	entrypoint   []string
	metadata     map[string]string
	limits       map[string]string
	created      time.Time
	expiry       time.Time // zero is never
	createExpiry time.Time
	timer        *time.Timer
	skew         time.Duration

	guest     *guest.Guest
	root      string
	execdAddr string
	readyAt   time.Time
	paused    bool
	removing  bool

	execdToken string
	sidecar    *guest.Sidecar // nil without a policy
}

// boot starts the guest and, where a policy is wanted and not dropped, its sidecar.
func (d *Double) boot(req createRequest, image string, k Knobs) (*sandbox, error) {
	id := newUUID()
	b := &sandbox{
		id: id, image: image, entrypoint: req.Entrypoint, metadata: req.Metadata, limits: req.ResourceLimits,
		created: time.Now().UTC(), root: filepath.Join(d.dir, id), skew: k.ClockSkew,
	}
	if len(b.entrypoint) == 0 {
		b.entrypoint = []string{"tail", "-f", "/dev/null"}
	}
	if err := os.Mkdir(b.root, 0o700); err != nil {
		return nil, err
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	b.execdAddr = ln.Addr().String()
	if token := req.Env["EXECD_ACCESS_TOKEN"]; token != nil {
		b.execdToken = *token
	}
	if req.NetworkPolicy != nil && !k.DropPolicy {
		b.sidecar = sidecarFor(*req.NetworkPolicy, k)
	}
	b.guest, err = guest.Start(guest.Config{
		Root: b.root, Hostname: id[:12], Entrypoint: b.entrypoint, Env: guestEnv(req.Env), Execd: k.Execd, Sidecar: b.sidecar,
		Limits: parseLimits(req.ResourceLimits), Network: b.network(),
	}, ln)
	if err != nil {
		return nil, err
	}
	b.guest.WaitReady(b.execdAddr, 10*time.Second)
	b.readyAt = time.Now().Add(k.UnreadyFor)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boxes[id] = b
	if req.Timeout != nil {
		b.createExpiry = b.created.Add(time.Duration(*req.Timeout) * time.Second)
		d.setExpiry(b, b.createExpiry)
	}
	return b, nil
}

// network is what the policy amounts to in routes. Where only names are filtered literal addresses stay reachable, as
// they do with the real sidecar. Names are not resolved here, so an allowed name adds nothing.
func (b *sandbox) network() guest.Network {
	if b.sidecar == nil {
		return guest.Network{Everything: true}
	}
	st := egress.New(b.sidecar.Policy, "", b.sidecar.Enforcement).Status()
	if st.Policy.DefaultAction == "allow" || st.EnforcementMode != egress.ModeDNSNFT {
		return guest.Network{Everything: true}
	}
	var n guest.Network
	for _, rule := range st.Policy.Egress {
		if _, err := netip.ParsePrefix(rule.Target); err == nil && rule.Action == "allow" {
			n.CIDRs = append(n.CIDRs, rule.Target)
		}
	}
	return n
}

// units are the suffixes of a memory limit.
var units = map[string]int64{"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

// parseLimits reads what has been checked; what cannot be read is no limit, as with lenient releases.
func parseLimits(given map[string]string) guest.Limits {
	var out guest.Limits
	text := strings.ToLower(given["memory"])
	digits := strings.TrimRight(text, "kmgtib")
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		out.MemoryBytes = n * units[text[len(digits):min(len(digits)+1, len(text))]]
	}
	cpu, milli := strings.CutSuffix(given["cpu"], "m")
	if n, err := strconv.ParseFloat(cpu, 64); err == nil {
		if !milli {
			n *= 1000
		}
		out.MilliCPUs = int64(n)
	}
	return out
}

func sidecarFor(policy egress.Policy, k Knobs) *guest.Sidecar {
	if k.AlterPolicy != nil {
		policy = k.AlterPolicy(policy)
	}
	return &guest.Sidecar{Policy: policy, Token: newUUID(), Enforcement: cmp.Or(k.Enforcement, egress.ModeDNS)}
}

func guestEnv(extra map[string]*string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	for k, v := range extra {
		if v != nil {
			env = append(env, k+"="+*v)
		}
	}
	return env
}

// setExpiry arms the timer; d.mu is held.
func (d *Double) setExpiry(b *sandbox, at time.Time) {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.expiry = at
	if !at.IsZero() {
		b.timer = time.AfterFunc(time.Until(at), func() { d.remove(b.id) })
	}
}

// remove ends a sandbox with everything that belongs to it.
func (d *Double) remove(id string) bool {
	d.mu.Lock()
	b := d.boxes[id]
	delete(d.boxes, id)
	d.mu.Unlock()
	if b == nil {
		return false
	}
	if b.timer != nil {
		b.timer.Stop()
	}
	b.guest.Kill()
	_ = os.RemoveAll(b.root)
	return true
}

type statusView struct {
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	At      string `json:"lastTransitionAt,omitempty"`
}

func (b *sandbox) status() statusView {
	at := b.created.Format(time.RFC3339Nano)
	select {
	case <-b.guest.Done():
		code := b.guest.ExitCode()
		if code == 0 {
			return statusView{"Terminated", "CONTAINER_EXITED", "Sandbox container exited successfully.", at}
		}
		return statusView{"Failed", "CONTAINER_EXITED_ERROR", fmt.Sprintf("Sandbox container exited with code %d.", code), at}
	default:
	}
	if b.paused {
		return statusView{"Paused", "CONTAINER_PAUSED", "Sandbox container is paused.", at}
	}
	return statusView{"Running", "CONTAINER_RUNNING", "Sandbox container is running.", at}
}

// view is the sandbox as the interface shows it; create leaves the image out and always says Running.
func (b *sandbox) view(full bool) map[string]any {
	out := map[string]any{
		"id": b.id, "status": b.status(), "entrypoint": b.entrypoint,
		"createdAt": b.created.Add(b.skew).Format(time.RFC3339Nano),
	}
	// What is not there is left out, not null.
	if b.metadata != nil {
		out["metadata"] = b.metadata
	}
	if !b.expiry.IsZero() {
		out["expiresAt"] = b.expiry.Add(b.skew).Format(time.RFC3339Nano)
	}
	if full {
		out["image"] = map[string]string{"uri": b.image}
	} else {
		out["status"] = statusView{State: "Running", Reason: "CONTAINER_RUNNING", Message: "Sandbox container is running."}
	}
	return out
}
