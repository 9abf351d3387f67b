//go:build linux

package opensandbox_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/conformance/conformancetest"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

func buildDriver(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := plugintest.Build(dir, "./cmd/sandboxctl-driver-opensandbox"); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "sandboxctl-driver-opensandbox")
}

// TestConformance takes minutes: the server's shortest lifetime is a minute, and cases wait for it to pass.
func TestConformance(t *testing.T) {
	if os.Getenv("OPENSANDBOX_TEST_CONFORMANCE") == "" {
		t.Skip("takes minutes; testing/test-opensandbox.sh runs it")
	}
	for name, proxied := range map[string]bool{"direct": false, "through the server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDouble(t, healthy)
			settings, err := json.Marshal(map[string]any{"endpoint": d.URL(), "use_server_proxy": proxied})
			if err != nil {
				t.Fatal(err)
			}
			target := conformance.Binary(conformance.BinaryOptions{
				Name: "opensandbox", Path: buildDriver(t), StateDir: t.TempDir(), Settings: settings,
				Environ: append(os.Environ(), "OPEN_SANDBOX_API_KEY=test-key"),
			})
			target.CheckedAgainst = "a double that OpenSandbox's own clients were run against"
			conformancetest.Test(t, target)
		})
	}
}
