package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin/conformance"
)

//go:embed intro.md
var intro string

// page is the whole of docs/conformance.md.
func page(reports []conformance.Report, cases []conformance.Case) string {
	var out strings.Builder
	out.WriteString(intro)
	writeMatrix(&out, reports, cases)
	writeExceptions(&out, reports)
	writeCases(&out, cases)
	writeRows(&out, cases)
	return out.String()
}

func row(out *strings.Builder, cells ...string) {
	for i, cell := range cells {
		cells[i] = strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
	}
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

func writeMatrix(out *strings.Builder, reports []conformance.Report, cases []conformance.Case) {
	out.WriteString("\n## Drivers\n\n")
	head, line, against, total := []string{"group"}, []string{"---"}, []string{"checked against"}, []string{"all"}
	for _, report := range reports {
		head, line = append(head, report.Driver), append(line, "---")
		against = append(against, report.CheckedAgainst)
		total = append(total, counts(report.Results))
	}
	row(out, head...)
	row(out, line...)
	row(out, against...)
	for _, group := range conformance.Groups() {
		cells := []string{string(group)}
		for _, report := range reports {
			cells = append(cells, counts(ofGroup(report.Results, group)))
		}
		row(out, cells...)
	}
	row(out, total...)
}

func ofGroup(results []conformance.Result, group conformance.Group) []conformance.Result {
	return slices.DeleteFunc(slices.Clone(results), func(r conformance.Result) bool { return r.Group != group })
}

// counts is a cell: "12 pass, 2 skip".
func counts(results []conformance.Result) string {
	number := map[conformance.Outcome]int{}
	for _, result := range results {
		number[result.Outcome]++
	}
	parts := []string{}
	for _, outcome := range []conformance.Outcome{conformance.Failed, conformance.Passed, conformance.Skipped} {
		if n := number[outcome]; n > 0 {
			text := fmt.Sprintf("%d %s", n, outcome)
			if outcome == conformance.Failed {
				text = "**" + text + "**"
			}
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return "not run"
	}
	return strings.Join(parts, ", ")
}

// writeExceptions lists what did not pass, with the reason.
func writeExceptions(out *strings.Builder, reports []conformance.Report) {
	out.WriteString("\n## What did not pass\n\n")
	row(out, "driver", "case", "outcome", "reason")
	row(out, "---", "---", "---", "---")
	for _, report := range reports {
		for _, result := range report.Results {
			if result.Outcome != conformance.Passed {
				row(out, report.Driver, result.ID, string(result.Outcome), result.Detail)
			}
		}
	}
}

func writeCases(out *strings.Builder, cases []conformance.Case) {
	out.WriteString("\n## Cases\n\n")
	row(out, "case", "why", "source", "needs")
	row(out, "---", "---", "---", "---")
	for _, c := range cases {
		needs := []string{}
		for _, need := range c.Needs {
			needs = append(needs, need.Capability)
		}
		row(out, c.ID, c.Reason, c.Source, strings.Join(needs, ", "))
	}
}

// writeRows says for each row of the Airflow contract's checks where it is checked.
func writeRows(out *strings.Builder, cases []conformance.Case) {
	out.WriteString("\n## Rows of the Airflow sandbox contract\n\n")
	row(out, "row", "checked by")
	row(out, "---", "---")
	checkedBy := map[int][]string{}
	for _, c := range cases {
		for _, number := range airflowRows(c.Source) {
			checkedBy[number] = append(checkedBy[number], c.ID)
		}
	}
	for number := 1; number <= lastRow; number++ {
		where := strings.Join(checkedBy[number], ", ")
		if where == "" {
			where = elsewhere[number]
		}
		row(out, strconv.Itoa(number), where)
	}
}

// airflowRows reads the numbers in "airflow 1, 2; reports 3".
func airflowRows(source string) []int {
	rows := []int{}
	for part := range strings.SplitSeq(source, ";") {
		numbers, ok := strings.CutPrefix(strings.TrimSpace(part), "airflow ")
		if !ok {
			continue
		}
		for text := range strings.SplitSeq(numbers, ",") {
			if number, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
				rows = append(rows, number)
			}
		}
	}
	return rows
}
