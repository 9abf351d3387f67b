package plugin

import (
	"maps"
	"strconv"
	"time"
)

// Labels that sandboxctl puts on every sandbox, where the backend can hold them, so
// that any copy of sandboxctl can tell whose a sandbox is and when it ends.
const (
	LabelCreatedBy = "created-by"
	LabelID        = "sandboxctl-id"
	LabelName      = "sandboxctl-name"
	LabelOwner     = "sandboxctl-owner"
	// LabelCreatedAt and LabelExpiresAt are unix seconds; the latter is absent for
	// a sandbox that does not expire.
	LabelCreatedAt = "sandboxctl-created-at"
	LabelExpiresAt = "sandboxctl-expires-at"

	// CreatedBy is the value of LabelCreatedBy.
	CreatedBy = "sandboxctl"
)

// BackendLabels returns the user's labels and sandboxctl's own for a new sandbox.
func BackendLabels(spec *SandboxSpec) map[string]string {
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelCreatedBy] = CreatedBy
	labels[LabelID] = spec.ID
	labels[LabelName] = spec.Name
	labels[LabelOwner] = spec.Owner
	labels[LabelCreatedAt] = strconv.FormatInt(spec.CreatedAt.Unix(), 10)
	if !spec.ExpiresAt.IsZero() {
		// Rounded up: a backend must not be told to end a lease early.
		labels[LabelExpiresAt] = strconv.FormatInt(spec.ExpiresAt.Add(time.Second-1).Unix(), 10)
	}
	return labels
}

// SandboxFromLabels fills what BackendLabels wrote into a sandbox. It reports
// whether the labels are sandboxctl's at all. Numbers that do not parse are left
// unset, since labels can be edited by others.
func SandboxFromLabels(labels map[string]string) (sandbox *Sandbox, ours bool) {
	if labels[LabelCreatedBy] != CreatedBy || labels[LabelID] == "" {
		return nil, false
	}
	sandbox = &Sandbox{
		ID:        labels[LabelID],
		Name:      labels[LabelName],
		Owner:     labels[LabelOwner],
		CreatedAt: unixSeconds(labels[LabelCreatedAt]),
		ExpiresAt: unixSeconds(labels[LabelExpiresAt]),
		Labels:    maps.Clone(labels),
	}
	for _, key := range []string{LabelCreatedBy, LabelID, LabelName, LabelOwner, LabelCreatedAt, LabelExpiresAt} {
		delete(sandbox.Labels, key)
	}
	return sandbox, true
}

func unixSeconds(text string) time.Time {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
