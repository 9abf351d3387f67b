package plugin

import "time"

// Ref names a sandbox on every call after Create.
type Ref struct {
	// ID is sandboxctl's own id: "sb-" and 12 base32 characters.
	ID string
	// Handle is what CreateEvents.Created or Sandbox.Handle last said. It is empty
	// when the host lost it; the driver then looks the sandbox up by ID.
	Handle []byte
}

// SandboxSpec is what a sandbox shall be. The host has refused whatever Info does
// not claim, so a driver may rely on fields it does not support being unset.
type SandboxSpec struct {
	// RequestID is the same when the host repeats a create whose answer was lost.
	RequestID string
	ID        string
	Name      string
	Owner     string
	// Image is empty when the user named none and Info has no default.
	Image   string
	Env     map[string]string
	Labels  map[string]string
	Workdir string
	// CPUs, MemoryBytes, DiskBytes and PIDs are zero when not asked for.
	CPUs        float64
	MemoryBytes uint64
	// DiskBytes is the most that the sandbox may write to its file system.
	DiskBytes uint64
	// PIDs is the most processes and threads at a time.
	PIDs      uint32
	GPU       string
	Network   NetworkPolicy
	CreatedAt time.Time
	// ExpiresAt is zero for a sandbox that does not expire.
	ExpiresAt time.Time
	// IdleTimeout is zero when not asked for.
	IdleTimeout time.Duration
	Options     map[string]string
}

// NetworkMode is how much of the network a sandbox may reach.
type NetworkMode string

// The network modes.
const (
	// NetworkNone lets nothing out, DNS included.
	NetworkNone NetworkMode = "none"
	// NetworkOpen reaches what is public, and the private ranges among the CIDRs.
	NetworkOpen NetworkMode = "open"
	// NetworkAllow lets out only what the policy lists.
	NetworkAllow NetworkMode = "allow"
)

// NetworkPolicy says what a sandbox may reach.
type NetworkPolicy struct {
	Mode NetworkMode `json:"mode"`
	// Hosts are lower-case names, with at most one leading "*.".
	Hosts []string `json:"hosts,omitempty"`
	// CIDRs are canonical: no host bits are set.
	CIDRs []string `json:"cidrs,omitempty"`
}

// State is where a sandbox is in its life.
type State string

// The states of a sandbox.
const (
	StateCreating State = "creating"
	StateRunning  State = "running"
	StatePaused   State = "paused"
	// StateStopped is not running; an exec starts it again where the backend does that.
	StateStopped State = "stopped"
	StateFailed  State = "failed"
)

// Sandbox is a sandbox as the backend has it.
type Sandbox struct {
	ID          string
	Handle      []byte
	Name        string
	Owner       string
	State       State
	StateReason string
	Image       string
	Labels      map[string]string
	CreatedAt   time.Time
	// ExpiresAt is zero for a sandbox that does not expire.
	ExpiresAt time.Time
	// Network is the policy in force, as read back where the backend can tell.
	Network NetworkPolicy
	Workdir string
	// Details is a JSON object of the backend's own, shown by inspect.
	Details []byte
}

// ListRequest narrows a List.
type ListRequest struct {
	// Owner, when set, is the only owner wanted. A driver may leave it to the host.
	Owner string
}

// SandboxList is the answer of List.
type SandboxList struct {
	Sandboxes []*Sandbox
	// Warnings name rows that could not be read.
	Warnings []string
}
