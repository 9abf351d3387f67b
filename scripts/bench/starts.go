//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
)

// manyRecords is the size of a ledger that nobody has cleaned up.
const manyRecords = 1000

// Budgets of design.md section 10, in milliseconds.
const (
	versionLimit   = 8
	lsLimit        = 25
	lsManyLimit    = 60
	execOverhead   = 35
	createOverhead = 60
	// imageOverhead is what an image that is there may add.
	imageOverhead = 30
)

func measureVersion(ctx context.Context, l *lab) ([]row, error) {
	h, err := l.fake(ctx)
	if err != nil {
		return nil, err
	}
	variants := []variant{
		h.variant("sandboxctl version", "version"),
		{name: "/bin/true, to compare", run: func(ctx context.Context) ([]float64, error) {
			elapsed, err := l.timed(exec.CommandContext(ctx, "/bin/true"))
			return one(milliseconds(elapsed), err)
		}},
	}
	measured, err := interleave(ctx, l.runs, variants)
	if err != nil {
		return nil, err
	}
	result := rows("version", unitTime, variants, measured, 0)
	result[0].budget = atMost(versionLimit, unitTime, result[0].values)
	return result, nil
}

func measureLs(ctx context.Context, l *lab) ([]row, error) {
	fake, err := l.fake(ctx)
	if err != nil {
		return nil, err
	}
	local, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	many, err := l.newHome("many")
	if err != nil {
		return nil, err
	}
	if err := many.remember(ctx, manyRecords); err != nil {
		return nil, err
	}
	variants := []variant{
		fake.variant("fake driver", "ls"),
		local.variant("local driver", "ls"),
		many.variant(fmt.Sprintf("fake driver, %d records", manyRecords), "ls"),
	}
	measured, err := interleave(ctx, l.runs, variants)
	if err != nil {
		return nil, err
	}
	result := rows("ls", unitTime, variants, measured, 0)
	for i, limit := range []float64{lsLimit, lsLimit, lsManyLimit} {
		result[i].budget = atMost(limit, unitTime, result[i].values)
	}
	return result, nil
}

func measureExec(ctx context.Context, l *lab) ([]row, error) {
	fake, err := l.fake(ctx)
	if err != nil {
		return nil, err
	}
	local, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	bare, err := l.bare(ctx)
	if err != nil {
		return nil, err
	}
	engine, err := l.docker(ctx)
	if err != nil {
		return nil, err
	}
	variants := []variant{
		local.variant("local driver", "exec", sandboxName, "--", "true"),
		{name: "bare runsc exec", run: func(ctx context.Context) ([]float64, error) {
			elapsed, err := l.timed(bare.exec(ctx, "true"))
			return one(milliseconds(elapsed), err)
		}},
		{name: "docker exec", absent: engine.absent, run: func(ctx context.Context) ([]float64, error) {
			elapsed, err := engine.exec(ctx, "true")
			return one(milliseconds(elapsed), err)
		}},
		l.bubblewrap("true"),
		fake.variant("fake driver", "exec", sandboxName, "--", "true"),
	}
	measured, err := interleave(ctx, l.runs, variants)
	if err != nil {
		return nil, err
	}
	result := rows("exec true", unitTime, variants, measured, 0)
	result[0].budget = overBare(execOverhead, result)
	return result, nil
}

// over is the budget of a row by what it is compared with.
func over(limit float64, measured, bare row) *budget {
	overhead := measured.values.median() - bare.values.median()
	return &budget{fmt.Sprintf("bare runsc + %g ms (is %+.1f)", limit, overhead), overhead <= limit}
}

// overBare is the budget of the local driver, the first row, by bare runsc and docker,
// the rows that follow.
func overBare(limit float64, compared []row) *budget {
	local, bare, engine := compared[0], compared[1], compared[2]
	extra := local.values.median() - bare.values.median()
	wanted := &budget{text: fmt.Sprintf("bare runsc + %g ms (is + %.1f)", limit, extra), met: extra <= limit}
	if engine.note == "" {
		wanted.text += ", below docker"
		wanted.met = wanted.met && local.values.median() < engine.values.median()
	}
	return wanted
}
