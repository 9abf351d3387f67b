//go:build unix

package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// harmless are the cases that do not touch the machine outside the sandbox's
// directory: here the guest's /tmp is this machine's. The cases about isolation are
// left out as well; they fail, as they should.
var harmless = regexp.MustCompile(`^(exec\.(argv|env|exit-codes|no-stdin|not-found|signal|stdin-.*|long-argument)|` +
	`output\.(all-bytes|separate|live|tail-at-exit|kept-on-timeout)|timeout\.(open-stdin|fraction|term-ignored)|` +
	`lifecycle\.(info|create-usable|inspect|labels|list|lookup-by-id|destroy|destroy-under-exec|nothing-left))$`)

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	if err := plugintest.Build(dir, "."); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "driver-minimal")
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
