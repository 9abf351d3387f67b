//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
)

// harmless are the cases that do not touch the machine outside the sandbox's
// directory: here the guest's /tmp is this machine's. The cases about isolation are
// left out as well; they fail, as they should.
var harmless = regexp.MustCompile(`^(exec\.(argv|env|exit-codes|no-stdin|not-found|signal|stdin-.*|long-argument)|` +
	`output\.(all-bytes|separate|live|tail-at-exit|kept-on-timeout)|timeout\.(open-stdin|fraction|term-ignored)|` +
	`lifecycle\.(info|create-usable|inspect|labels|list|lookup-by-id|destroy|destroy-under-exec|nothing-left))$`)

func TestConformance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sandboxctl-driver-minimal")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	report, err := conformance.Run(t.Context(),
		conformance.Binary(conformance.BinaryOptions{Name: "minimal", Path: path, StateDir: t.TempDir()}),
		conformance.Options{Run: harmless})
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		if result.Outcome == conformance.Failed {
			t.Errorf("%s: %s", result.ID, result.Detail)
		}
	}
	if report.Passed < 20 {
		t.Errorf("only %d cases passed, %d were skipped", report.Passed, report.Skipped)
	}
}
