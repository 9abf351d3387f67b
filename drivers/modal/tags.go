package modal

import (
	"encoding/json"
	"maps"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Tags that this driver adds to sandboxctl's labels, so that a list says what a
// sandbox is without another call.
const (
	tagNonce   = "sandboxctl-modal-nonce"
	tagImage   = "sandboxctl-modal-image"
	tagNetwork = "sandboxctl-modal-network"
	tagWorkdir = "sandboxctl-modal-workdir"
)

func tagsFor(spec *plugin.SandboxSpec) (map[string]string, error) {
	tags := plugin.BackendLabels(spec)
	network, err := json.Marshal(spec.Network)
	if err != nil {
		return nil, err
	}
	tags[tagNonce] = spec.RequestID
	tags[tagImage] = spec.Image
	tags[tagNetwork] = string(network)
	if spec.Workdir != "" {
		tags[tagWorkdir] = spec.Workdir
	}
	return tags, nil
}

// sandboxFromTags describes a running sandbox by its tags. It returns false for
// one that is not sandboxctl's.
func sandboxFromTags(modalID string, tags map[string]string) (*plugin.Sandbox, bool) {
	own := maps.Clone(tags)
	for _, name := range []string{tagNonce, tagImage, tagNetwork, tagWorkdir} {
		delete(own, name)
	}
	sandbox, ours := plugin.SandboxFromLabels(own)
	if !ours {
		return nil, false
	}
	sandbox.Handle = handleFromTags(modalID, tags).encode()
	sandbox.State = plugin.StateRunning
	sandbox.Image = tags[tagImage]
	sandbox.Workdir = tags[tagWorkdir]
	// Tags can be edited by others; a policy that cannot be read is left out.
	_ = json.Unmarshal([]byte(tags[tagNetwork]), &sandbox.Network)
	return sandbox, true
}
