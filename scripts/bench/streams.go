//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

// fakeStream and guestStream are what a command of the fake driver and one in a guest
// print or read in one run, in bytes.
const (
	fakeStream  = 512 << 20
	guestStream = 128 << 20
)

// throughputLimit is the least throughput of exec and cp, in MB/s.
const throughputLimit = 400

// chunkSizes are what a driver may read at once: what io.Copy does, and the most that
// goes into one message.
var chunkSizes = []int{32 << 10, 256 << 10}

// transfer measures a command's throughput, in MB/s.
func (l *lab) transfer(name string, size int64, command func(context.Context) (*exec.Cmd, error)) variant {
	return variant{name: name, run: func(ctx context.Context) ([]float64, error) {
		cmd, err := command(ctx)
		if err != nil {
			return nil, err
		}
		elapsed, err := l.timed(cmd)
		if err != nil {
			return nil, err
		}
		return one(megabytes(size, elapsed), nil)
	}}
}

func measureStdout(ctx context.Context, l *lab) ([]row, error) {
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
	printing := []string{"head", "-c", strconv.Itoa(guestStream), "/dev/zero"}
	var variants []variant
	for _, chunk := range chunkSizes {
		variants = append(variants, l.transfer(fmt.Sprintf("fake driver, %d KiB at a time", chunk>>10), fakeStream,
			func(ctx context.Context) (*exec.Cmd, error) {
				return fake.command(ctx, "exec", sandboxName, "--", "print", strconv.Itoa(fakeStream), strconv.Itoa(chunk)), nil
			}))
	}
	variants = append(variants,
		l.transfer("local driver, head -c", guestStream, func(ctx context.Context) (*exec.Cmd, error) {
			return local.command(ctx, append([]string{"exec", sandboxName, "--"}, printing...)...), nil
		}),
		l.transfer("bare runsc exec, head -c", guestStream, func(ctx context.Context) (*exec.Cmd, error) {
			cmd := bare.exec(ctx, printing...)
			// A writer that is no file makes it a pipe, which is what the driver gives.
			cmd.Stdout = struct{ io.Writer }{io.Discard}
			return cmd, nil
		}))
	measured, err := interleave(ctx, l.transfers, variants)
	if err != nil {
		return nil, err
	}
	result := rows("exec stdout to /dev/null", unitThroughput, variants, measured, 0)
	for i := range chunkSizes {
		result[i].budget = atLeast(throughputLimit, unitThroughput, result[i].values)
	}
	return result, nil
}

func measureStdin(ctx context.Context, l *lab) ([]row, error) {
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
	data, err := l.dataFile(guestStream)
	if err != nil {
		return nil, err
	}
	defer data.Close()
	reading := []string{"sh", "-c", "cat >/dev/null"}
	// input gives a command the data from its beginning.
	input := func(cmd *exec.Cmd) (*exec.Cmd, error) {
		cmd.Stdin = data
		_, err := data.Seek(0, io.SeekStart)
		return cmd, err
	}
	variants := []variant{
		l.transfer("fake driver", guestStream, func(ctx context.Context) (*exec.Cmd, error) {
			return input(fake.command(ctx, "exec", "-i", sandboxName, "--", "discard"))
		}),
		l.transfer("local driver, cat", guestStream, func(ctx context.Context) (*exec.Cmd, error) {
			return input(local.command(ctx, append([]string{"exec", "-i", sandboxName, "--"}, reading...)...))
		}),
		l.transfer("bare runsc exec, cat", guestStream, func(ctx context.Context) (*exec.Cmd, error) {
			cmd, err := input(bare.exec(ctx, reading...))
			cmd.Stdin = struct{ io.Reader }{data}
			return cmd, err
		}),
	}
	measured, err := interleave(ctx, l.transfers, variants)
	if err != nil {
		return nil, err
	}
	return rows("exec -i stdin to /dev/null", unitThroughput, variants, measured, 0), nil
}

// dataFile makes a file without holes, which is gone when it is closed.
func (l *lab) dataFile(size int64) (*os.File, error) {
	file, err := os.CreateTemp(l.dir, "data-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	return file, fill(file, size)
}

// fill writes size bytes, a multiple of 1 MiB, none of them zero.
func fill(w io.Writer, size int64) error {
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i%251 + 1)
	}
	for range size / int64(len(block)) {
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return nil
}
