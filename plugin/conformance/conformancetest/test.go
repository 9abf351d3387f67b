// Package conformancetest runs the conformance suite in a driver's tests.
package conformancetest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
)

// ReportsEnv names a directory to which Test writes its report, as <driver>.json. From
// these docs/conformance.md is made.
const ReportsEnv = "SANDBOXCTL_CONFORMANCE_REPORTS"

// Test runs every case as a subtest, so that -run, -parallel and -v work as usual.
func Test(t *testing.T, target conformance.Target) {
	t.Helper()
	session, err := conformance.NewSession(t.Context(), target)
	if err != nil {
		t.Fatalf("the driver did not start: %v", err)
	}
	t.Cleanup(session.Close)
	r := &reporter{session: session, report: session.NewReport()}
	t.Run("parallel", func(t *testing.T) {
		for _, c := range conformance.Cases() {
			if !c.Serial {
				t.Run(c.ID, func(t *testing.T) {
					t.Parallel()
					r.run(t, c)
				})
			}
		}
	})
	t.Run("alone", func(t *testing.T) {
		for _, c := range conformance.Cases() {
			if c.Serial {
				t.Run(c.ID, func(t *testing.T) { r.run(t, c) })
			}
		}
	})
	if dir := os.Getenv(ReportsEnv); dir != "" {
		r.write(t, dir)
	}
}

// reporter collects what the subtests find.
type reporter struct {
	session *conformance.Session

	mu     sync.Mutex
	report conformance.Report
}

func (r *reporter) run(t *testing.T, c conformance.Case) {
	result := r.session.Run(t.Context(), c)
	r.mu.Lock()
	r.report.Add(result)
	r.mu.Unlock()
	switch result.Outcome {
	case conformance.Failed:
		t.Errorf("%s: %s (%s)", result.Detail, c.Reason, c.Source)
	case conformance.Skipped:
		t.Skip(result.Detail)
	}
}

func (r *reporter) write(t *testing.T, dir string) {
	r.report.Seconds = time.Since(r.report.StartedAt).Seconds()
	content, err := json.MarshalIndent(r.report, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, r.report.Driver+".json"), append(content, '\n'), 0o644)
	}
	if err != nil {
		t.Errorf("the report could not be written: %v", err)
	}
}
