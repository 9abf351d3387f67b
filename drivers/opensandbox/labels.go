package opensandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Labels of the driver's own, next to sandboxctl's.
const (
	labelNetwork = "sandboxctl-network"
	labelRequest = "sandboxctl-request"
)

// The server's syntax is that of Kubernetes labels.
var (
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
)

// imageLabels begin the names of labels that images carry; on Docker they show up among a sandbox's own.
var imageLabels = []string{"org.opencontainers.image.", "org.label-schema.", "com.docker.", "io.buildah."}

func fromImage(key string) bool {
	return key == "maintainer" || slices.ContainsFunc(imageLabels, func(p string) bool { return strings.HasPrefix(key, p) })
}

// checkLabels refuses what the server would refuse, or what could not be told from an image's labels again.
func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		prefix, name, found := strings.Cut(key, "/")
		if !found {
			prefix, name = "", key
		}
		refuse := func(why string) error {
			return plugin.Refusedf("--label", "the label %s=%s cannot be put on an OpenSandbox sandbox: %s", key, labels[key], why)
		}
		switch value := labels[key]; {
		case prefix == "opensandbox.io" || strings.HasSuffix(prefix, ".opensandbox.io"):
			return refuse("the prefix is reserved for the server")
		case fromImage(key):
			return refuse("the server mixes labels of that name with those of the image")
		case !labelName.MatchString(name) || found && !labelPrefix.MatchString(prefix):
			return refuse("a name has up to 63 letters, digits, dashes, underscores and dots, and may have a DNS name and a slash before it")
		case value != "" && !labelName.MatchString(value):
			return refuse("a value has up to 63 letters, digits, dashes, underscores and dots, and ends with a letter or digit")
		}
	}
	return nil
}

// labelsFor is the metadata of a new sandbox.
func labelsFor(spec *plugin.SandboxSpec) map[string]string {
	labels := plugin.BackendLabels(spec)
	labels[labelNetwork] = string(spec.Network.Mode)
	if spec.RequestID != "" {
		labels[labelRequest] = requestLabel(spec.RequestID)
	}
	return labels
}

// requestLabel fits any request id into a label.
func requestLabel(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

func unixLabel(t time.Time) string {
	return strconv.FormatInt(t.Add(time.Second-1).Unix(), 10)
}

// sandboxOf is a record as sandboxctl sees it, nil when it is none of sandboxctl's.
func sandboxOf(r *sandboxRecord) *plugin.Sandbox {
	s, ours := plugin.SandboxFromLabels(r.Metadata)
	if !ours {
		return nil
	}
	s.Network.Mode = plugin.NetworkMode(r.Metadata[labelNetwork])
	delete(s.Labels, labelNetwork)
	delete(s.Labels, labelRequest)
	maps.DeleteFunc(s.Labels, func(key, _ string) bool { return fromImage(key) })
	s.Handle = boxRef{ID: r.ID}.handle()
	s.State, s.StateReason = stateOf(r), stateText(r)
	// The server's expiry is the one in force; renewals and a restart of the server move it.
	s.ExpiresAt = r.expires()
	if r.Image != nil {
		s.Image = r.Image.URI
	}
	if s.CreatedAt.IsZero() {
		s.CreatedAt = r.CreatedAt.UTC()
	}
	if details, err := json.Marshal(map[string]string{"id": r.ID, "state": r.Status.State, "reason": r.Status.Reason}); err == nil {
		s.Details = details
	}
	return s
}

// stateOf maps the server's states, which are an open set.
func stateOf(r *sandboxRecord) plugin.State {
	switch strings.ToLower(r.Status.State) {
	case "pending":
		return plugin.StateCreating
	case "running", "resuming":
		return plugin.StateRunning
	case "pausing", "paused":
		return plugin.StatePaused
	case "stopping", "terminated":
		return plugin.StateStopped
	}
	return plugin.StateFailed
}

func running(r *sandboxRecord) bool { return stateOf(r) == plugin.StateRunning }

// ended says that a sandbox will not run again. A state that nobody has heard of does not say so.
func ended(r *sandboxRecord) bool {
	switch strings.ToLower(r.Status.State) {
	case "stopping", "terminated", "failed":
		return true
	}
	return false
}

// stateText is why a sandbox is in its state, for people.
func stateText(r *sandboxRecord) string {
	if r.Status.Message != "" {
		return r.Status.Message
	}
	return strings.TrimSpace(r.Status.State + " " + r.Status.Reason)
}
