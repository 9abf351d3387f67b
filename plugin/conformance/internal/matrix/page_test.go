package main

import (
	"os"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
)

func TestPageIsUpToDate(t *testing.T) {
	reports, err := readReports("../../reports")
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) == 0 {
		t.Fatal("there are no reports")
	}
	written, err := os.ReadFile("../../../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != page(reports, conformance.Cases()) {
		t.Error("docs/conformance.md is not what its sources say; run: go run ./plugin/conformance/internal/matrix >docs/conformance.md")
	}
}

// A report of an older suite would hide the cases that are new.
func TestReportsAreComplete(t *testing.T) {
	reports, err := readReports("../../reports")
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range reports {
		known := map[string]bool{}
		for _, result := range report.Results {
			known[result.ID] = true
		}
		for _, c := range conformance.Cases() {
			if !known[c.ID] {
				t.Errorf("the report of %s has no case %s; run the suite again", report.Driver, c.ID)
			}
		}
		if report.CheckedAgainst == "" {
			t.Errorf("the report of %s does not say what stood behind the driver", report.Driver)
		}
	}
}

// Every row of the contract is checked by a case or has a place where it is.
func TestEveryRowHasAPlace(t *testing.T) {
	var out strings.Builder
	writeRows(&out, conformance.Cases())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got := len(lines) - 4; got != lastRow {
		t.Errorf("%d rows, want %d", got, lastRow)
	}
	for _, line := range lines {
		if strings.HasSuffix(line, "|  |") {
			t.Errorf("nobody checks %s", line)
		}
	}
}

func TestCounts(t *testing.T) {
	results := []conformance.Result{{Outcome: conformance.Passed}, {Outcome: conformance.Failed}, {Outcome: conformance.Passed}, {Outcome: conformance.Skipped}}
	if got := counts(results); got != "**1 fail**, 2 pass, 1 skip" {
		t.Errorf("cell is %q", got)
	}
	if got := counts(nil); got != "not run" {
		t.Errorf("empty cell is %q", got)
	}
}
