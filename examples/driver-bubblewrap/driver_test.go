//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// TestConformance does what docs/writing-a-driver.md ends with.
func TestConformance(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("there is NO bubblewrap here, so the driver was NOT tested; scripts/test-setup.sh installs it")
	}
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	sandboxctl, driver := filepath.Join(dir, "sandboxctl"), filepath.Join(dir, "driver-bubblewrap")
	if err := plugintest.Build(dir, "../../cmd/sandboxctl", "."); err != nil {
		t.Fatal(err)
	}
	test := exec.Command(sandboxctl, "driver", "test", "--json", driver)
	test.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+filepath.Join(dir, "tmp"))
	out, failure := test.Output()
	var report conformance.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %v\n%s", failure, err, out)
	}
	for _, result := range report.Results {
		if result.Outcome == conformance.Failed {
			t.Errorf("%s: %s", result.ID, result.Detail)
		}
	}
	if failure != nil || report.Passed < 90 {
		t.Errorf("%d cases passed, %d failed, %d were skipped; sandboxctl: %v", report.Passed, report.Failed, report.Skipped, failure)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "tmp", "sandboxctl-driver-test*")); err != nil || len(left) > 0 {
		t.Errorf("the test left %q behind (%v)", left, err)
	}
}
