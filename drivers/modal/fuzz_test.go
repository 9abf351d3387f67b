package modal

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Tags can be edited by anybody in the workspace.
func FuzzSandboxFromTags(f *testing.F) {
	tags, err := tagsFor(&plugin.SandboxSpec{ID: "sb-a", Network: plugin.NetworkPolicy{Mode: plugin.NetworkNone}})
	if err != nil {
		f.Fatal(err)
	}
	seed, err := json.Marshal(tags)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(seed))
	f.Add(`{"created-by":"sandboxctl","sandboxctl-id":"x","sandboxctl-expires-at":"9e99","sandboxctl-modal-network":"["}`)
	f.Fuzz(func(t *testing.T, text string) {
		var tags map[string]string
		if json.Unmarshal([]byte(text), &tags) != nil {
			return
		}
		sandbox, ours := sandboxFromTags("sb-1", tags)
		if ours != (sandbox != nil) {
			t.Fatalf("ours is %v of %v", ours, sandbox)
		}
		if ours && (sandbox.ID == "" || len(sandbox.Handle) == 0) {
			t.Errorf("%+v has no id or no handle", sandbox)
		}
	})
}

// The settings are written by hand.
func FuzzSettings(f *testing.F) {
	f.Add(`{"endpoint":"https://api.modal.com:443/"}`)
	f.Add(`{"app":"","host_match":"sni"}`)
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseSettings([]byte(text))
		if err == nil && (parsed.App == "" || strings.HasSuffix(parsed.Endpoint, "/")) {
			t.Errorf("%q became %+v", text, parsed)
		}
	})
}
