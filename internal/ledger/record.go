package ledger

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// State is how far a sandbox has come. It only ever moves forward.
type State string

const (
	// StateIntent: the backend may have been asked; its reference is not known.
	StateIntent State = "intent"
	// StateCreated: the backend's reference is known, the sandbox is not yet usable.
	StateCreated State = "created"
	// StateReady: the sandbox was handed to the user.
	StateReady State = "ready"
	// StateGone: the sandbox is no more; the record is a tombstone.
	StateGone State = "gone"
)

// Record is what the ledger knows about one sandbox. It never holds a secret.
type Record struct {
	// Schema is the version of the file format; it rises only when an older sandboxctl could no longer read the file.
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	// Name is the user's name, unique among the records that are not gone. It equals ID when the user gave none.
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// RequestID goes with the create call, so that a backend which knows idempotency can tell a repeat from a new one.
	RequestID string `json:"request_id,omitempty"`
	State     State  `json:"state"`
	// Handle is the backend's reference, opaque to everybody but the driver. Empty while State is intent, and in the
	// tombstone of an intent.
	Handle []byte `json:"-"`
	// Spec is what was asked for, as compact JSON whose bytes are kept, so that two specs can be compared as bytes.
	Spec   json.RawMessage   `json:"spec,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Reported is what the driver said about the sandbox when it became ready.
	Reported  json.RawMessage `json:"reported,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	// UpdatedAt is when the record was last written.
	UpdatedAt time.Time `json:"updated_at"`
	// ExpiresAt is the end of the lease; zero when there is none.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Process is the process that called Begin.
	Process Process `json:"process"`
	// GoneAt and GoneReason are set in a tombstone.
	GoneAt     time.Time `json:"gone_at,omitzero"`
	GoneReason string    `json:"gone_reason,omitempty"`
}

// Expired reports whether the lease has ended at now. It allows for no clock skew; that is the caller's.
func (r Record) Expired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

// Abandoned reports whether the create of this record was cut off: it never became ready and its process is known to be dead.
func (r Record) Abandoned() bool {
	return (r.State == StateIntent || r.State == StateCreated) && r.Process.Alive() == Dead
}

func (r Record) clone() Record {
	r.Handle = slices.Clone(r.Handle)
	r.Spec = slices.Clone(r.Spec)
	r.Reported = slices.Clone(r.Reported)
	r.Labels = maps.Clone(r.Labels)
	return r
}
