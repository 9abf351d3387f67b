// Command matrix writes docs/conformance.md from the reports in plugin/conformance/reports:
//
//	go run ./plugin/conformance/internal/matrix >docs/conformance.md
//
// A report is what `sandboxctl driver test NAME --json --checked-against WHAT` prints, or
// what conformancetest.Test writes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
)

func main() {
	reports, err := readReports("plugin/conformance/reports")
	if err == nil {
		_, err = os.Stdout.WriteString(page(reports, conformance.Cases()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// readReports reads a directory's reports in the order of their names.
func readReports(dir string) ([]conformance.Report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	reports := []conformance.Report{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var report conformance.Report
		if err := json.Unmarshal(content, &report); err != nil {
			return nil, fmt.Errorf("%s is no report: %w", file, err)
		}
		reports = append(reports, report)
	}
	return reports, nil
}
