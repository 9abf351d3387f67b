// Package output is the only place that writes to stdout: one JSON object per
// command, or text for people. It also decides on colour and terminals.
package output

import (
	"time"
)

// SchemaVersion names the shape of all JSON objects. Within it fields are only added.
const SchemaVersion = "sandboxctl/v1"

// Result is what a command has to say. It is a pointer to a struct that embeds Header.
type Result interface {
	header() *Header
	// Text writes the result for people; nothing is fine.
	Text(p *Printer)
}

// Header starts every JSON object.
type Header struct {
	Schema string `json:"schema"`
	// Kind is the command: "create".
	Kind string `json:"kind"`
	// OK says that sandboxctl did its job, whatever a guest command returned.
	OK    bool   `json:"ok"`
	Error *Error `json:"error,omitempty"`
}

func (h *Header) header() *Header { return h }

// Text is for results that say nothing to people.
func (h *Header) Text(*Printer) {}

// Error is a failure of sandboxctl, a driver or a backend.
type Error struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	// Hint says what to do.
	Hint   string `json:"hint,omitempty"`
	Driver string `json:"driver,omitempty"`
	// Sandbox is the sandbox that the failure is about, where there are several.
	Sandbox string `json:"sandbox,omitempty"`
	// Retryable says that the same call may succeed later and repeating it is safe.
	Retryable bool `json:"retryable"`
	// Details are further lines: the last that a driver said before it died.
	Details []string `json:"details,omitempty"`
	// Cause is what the failure was made from.
	Cause error `json:"-"`
}

// Network is a network policy.
type Network struct {
	Mode  string   `json:"mode"`
	Hosts []string `json:"hosts"`
	CIDRs []string `json:"cidrs"`
}

// Sandbox is one sandbox.
type Sandbox struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	// Driver is the driver's name.
	Driver string `json:"driver"`
	// State is creating, running, paused, stopped, failed, gone or unknown.
	State       string            `json:"state"`
	StateReason string            `json:"state_reason,omitempty"`
	Image       string            `json:"image,omitempty"`
	Labels      map[string]string `json:"labels"`
	Network     *Network          `json:"network,omitempty"`
	Workdir     string            `json:"workdir,omitempty"`
	// Mine says that this state directory owns it.
	Mine      bool       `json:"mine"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Expired says that its lease is over and gc will remove it.
	Expired bool `json:"expired"`
}

// Message is a result of one sentence.
type Message struct {
	Header
	Message string `json:"message,omitempty"`
}

// Text writes the sentence.
func (m *Message) Text(p *Printer) {
	if m.Message != "" {
		p.Line("%s", m.Message)
	}
}
