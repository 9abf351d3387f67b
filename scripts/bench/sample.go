//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// warmUps is how many first rounds are dropped: they fill the page cache.
const warmUps = 2

// variant is one of the things that are compared.
type variant struct {
	name string
	// absent, unless empty, is why it is not measured here.
	absent string
	// run does it once and returns what was measured, always in the same order.
	run func(context.Context) ([]float64, error)
}

// samples are the measurements of one quantity.
type samples []float64

// quantile is the nearest measured value.
func (s samples) quantile(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

func (s samples) median() float64 { return s.quantile(0.5) }

// series are all measurements of a variant, by quantity.
type series []samples

// interleave runs the variants in turn, so that whatever else the machine does falls on
// all of them alike; each round begins with another one. Absent variants have no series.
func interleave(ctx context.Context, rounds int, variants []variant) ([]series, error) {
	measured := make([]series, len(variants))
	for round := range warmUps + rounds {
		for turn := range variants {
			at := (round + turn) % len(variants)
			if variants[at].absent != "" {
				continue
			}
			values, err := variants[at].run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", variants[at].name, err)
			}
			if round < warmUps {
				continue
			}
			if measured[at] == nil {
				measured[at] = make(series, len(values))
			}
			for quantity, value := range values {
				measured[at][quantity] = append(measured[at][quantity], value)
			}
		}
	}
	return measured, nil
}

// one is the result of a run in which one thing was measured.
func one(value float64, err error) ([]float64, error) { return []float64{value}, err }

func milliseconds(elapsed time.Duration) float64 { return float64(elapsed) / float64(time.Millisecond) }

// megabytes is a throughput in MB/s, of 1,000,000 bytes.
func megabytes(size int64, elapsed time.Duration) float64 {
	return float64(size) / 1e6 / elapsed.Seconds()
}
