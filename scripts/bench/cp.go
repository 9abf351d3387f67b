//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// copySize is the size of the file that is copied, in bytes.
const copySize = 1 << 30

func measureCp(ctx context.Context, l *lab) ([]row, error) {
	local, err := l.local(ctx)
	if err != nil {
		return nil, err
	}
	source, target := l.path("source"), l.path("target")
	defer os.Remove(source)
	if err := writeSource(source); err != nil {
		return nil, err
	}
	inside := sandboxName + ":/workspace/copy"
	copied := func(from, to string) func(context.Context) ([]float64, error) {
		return func(ctx context.Context) ([]float64, error) {
			elapsed, seen, err := l.watched(local.command(ctx, "cp", "--quiet", from, to))
			return []float64{megabytes(copySize, elapsed), seen.command, seen.driver}, err
		}
	}
	variants := []variant{
		{name: "into a sandbox, local driver", run: copied(source, inside)},
		{name: "out of a sandbox, local driver", run: func(ctx context.Context) ([]float64, error) {
			values, err := copied(inside, target)(ctx)
			return values, errors.Join(err, discard(target))
		}},
		{name: "cp on the host, to compare", run: func(ctx context.Context) ([]float64, error) {
			elapsed, err := l.timed(exec.CommandContext(ctx, "cp", "--reflink=never", source, target))
			return []float64{megabytes(copySize, elapsed)}, errors.Join(err, discard(target))
		}},
	}
	// What comes out has to have gone in before.
	if err := local.run(ctx, "cp", "--quiet", source, inside); err != nil {
		return nil, err
	}
	measured, err := interleave(ctx, l.transfers, variants)
	if err != nil {
		return nil, err
	}
	result := rows("cp of 1 GiB", unitThroughput, variants, measured, 0)
	for i, way := range variants[:2] {
		result[i].budget = atLeast(throughputLimit, unitThroughput, result[i].values)
		result = append(result, memoryRows("cp of 1 GiB", way.name, measured[i][1], measured[i][2])...)
	}
	return result, local.run(ctx, "exec", sandboxName, "--", "rm", "/workspace/copy")
}

func writeSource(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(file, copySize), file.Close())
}

// discard removes a copy, which has to be whole.
func discard(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() != copySize {
		err = fmt.Errorf("%s has %d bytes instead of %d", path, info.Size(), copySize)
	}
	return errors.Join(err, os.Remove(path))
}
