package conformance

import (
	"cmp"
	"slices"
	"time"
)

// Outcome is how a case ended.
type Outcome string

// The outcomes of a case.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "fail"
	Skipped Outcome = "skip"
)

// Result is what became of one case.
type Result struct {
	ID      string  `json:"id"`
	Group   Group   `json:"group"`
	Outcome Outcome `json:"outcome"`
	// Detail says what was wrong, or why the case was skipped.
	Detail string `json:"detail,omitempty"`
	Reason string `json:"reason"`
	Source string `json:"source"`
	// Seconds is how long the case took.
	Seconds float64 `json:"seconds"`

	index int
}

// Report is what became of all cases.
type Report struct {
	Driver         string    `json:"driver"`
	Version        string    `json:"version"`
	CheckedAgainst string    `json:"checked_against"`
	StartedAt      time.Time `json:"started_at"`
	Seconds        float64   `json:"seconds"`
	Passed         int       `json:"passed"`
	Failed         int       `json:"failed"`
	Skipped        int       `json:"skipped"`
	Results        []Result  `json:"results"`
}

// Add adds a result, at its place in the order of Cases.
func (r *Report) Add(result Result) {
	at, _ := slices.BinarySearchFunc(r.Results, result.index, func(known Result, index int) int { return cmp.Compare(known.index, index) })
	r.Results = slices.Insert(r.Results, at, result)
	switch result.Outcome {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Skipped:
		r.Skipped++
	}
}
