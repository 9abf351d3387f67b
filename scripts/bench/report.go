//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// marker is the line of a Markdown file below which the results go.
const marker = "<!-- Written by make bench. -->"

// The units of measurements.
const (
	unitTime       = "ms"
	unitThroughput = "MB/s"
	unitMemory     = "MiB"
)

// row is one line of the results.
type row struct {
	what, variant, unit string
	values              samples
	// note stands in for values that there are none of.
	note   string
	budget *budget
}

// budget is what design.md section 10 demands of a row.
type budget struct {
	text string
	met  bool
}

func atMost(limit float64, unit string, values samples) *budget {
	return &budget{fmt.Sprintf("at most %g %s", limit, unit), values.median() <= limit}
}

func atLeast(limit float64, unit string, values samples) *budget {
	return &budget{fmt.Sprintf("at least %g %s", limit, unit), values.median() >= limit}
}

// rows makes a row of one quantity for each variant.
func rows(what, unit string, variants []variant, measured []series, quantity int) []row {
	all := make([]row, len(variants))
	for i, each := range variants {
		all[i] = row{what: what, variant: each.name, unit: unit, note: each.absent}
		if each.absent == "" {
			all[i].values = measured[i][quantity]
		}
	}
	return all
}

var headings = []string{"what", "variant", "median", "p10", "p90", "unit", "budget", "met"}

func (r row) cells() []string {
	cells := []string{r.what, r.variant, r.note, "", "", r.unit, "", ""}
	if r.note == "" {
		for i, quantile := range []float64{0.5, 0.1, 0.9} {
			cells[2+i] = fmt.Sprintf("%.1f", r.values.quantile(quantile))
		}
	}
	if r.budget != nil {
		cells[6], cells[7] = r.budget.text, map[bool]string{true: "yes", false: "NO"}[r.budget.met]
	}
	return cells
}

// report is the results and what they are worth: when, where and how they were had.
type report struct {
	facts []string
	rows  []row
}

func newReport(command string) *report {
	return &report{facts: []string{
		"Date: " + time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		fmt.Sprintf("Machine: %s, %d cores, Linux %s, %s", cpuModel(), runtime.NumCPU(), kernel(), runtime.Version()),
		"Load averages at the start: " + loadAverages(),
		"Command: `" + strings.TrimSpace(command) + "`",
	}}
}

func (r *report) print(w io.Writer) error {
	for _, fact := range r.facts {
		fmt.Fprintln(w, fact)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(headings, "\t"))
	for _, each := range r.rows {
		fmt.Fprintln(table, strings.Join(each.cells(), "\t"))
	}
	return table.Flush()
}

func (r *report) markdown() []byte {
	var text bytes.Buffer
	for _, fact := range r.facts {
		fmt.Fprintf(&text, "- %s\n", fact)
	}
	line := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	text.WriteString("\n")
	line(headings)
	line([]string{"---", "---", "--:", "--:", "--:", "---", "---", "---"})
	for _, each := range r.rows {
		line(each.cells())
	}
	return text.Bytes()
}

// writeMarkdown keeps what a file has above the marker.
func (r *report) writeMarkdown(path string) error {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above, _, marked := strings.Cut(string(content), marker)
	if !marked {
		above = ""
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%s%s\n\n%s", above, marker, r.markdown()), 0o644)
}

func cpuModel() string {
	content, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(content)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

func loadAverages() string {
	content, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(content))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
