// Command sandboxctl-driver-fake is a driver without a backend: its sandboxes exist in
// a file and its commands do nothing but print or read bytes. What it takes to use it is
// what sandboxctl itself costs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func main() { plugin.Serve(&driver{}) }

type driver struct{ stateDir string }

func (d *driver) Info() plugin.Info {
	return plugin.Info{
		Name: "fake", Version: "1.0.0", Description: "Prints and reads bytes, for benchmarks",
		Capabilities: plugin.Capabilities{
			Network:   plugin.NetworkSupport{None: true},
			Lease:     plugin.LeaseSupport{Unlimited: true},
			Exec:      plugin.ExecSupport{Stdin: true, SurvivesTimeout: true},
			Isolation: "none: no command is run",
		},
	}
}

func (d *driver) Configure(_ context.Context, config plugin.Config) (warnings []string, err error) {
	d.stateDir = config.StateDir
	return nil, nil
}

// Create is refused: the benchmark writes the ledger and the file that List reads.
func (d *driver) Create(context.Context, *plugin.SandboxSpec, plugin.CreateEvents) (*plugin.Sandbox, error) {
	return nil, plugin.Errorf(plugin.KindRefused, "the fake driver makes no sandboxes")
}

// List answers with what the benchmark has put into sandboxes.json.
func (d *driver) List(context.Context, plugin.ListRequest) (*plugin.SandboxList, error) {
	list := &plugin.SandboxList{}
	content, err := os.ReadFile(filepath.Join(d.stateDir, "sandboxes.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(content, &list.Sandboxes)
}

func (d *driver) Destroy(context.Context, plugin.Ref) (alreadyGone bool, err error) { return true, nil }

// Exec knows three commands: `true`; `print BYTES CHUNK`, which writes zeros, for ever if
// BYTES is 0, CHUNK bytes at a time; and `discard`, which reads its stdin.
func (d *driver) Exec(ctx context.Context, _ plugin.Ref, request *plugin.ExecRequest, stdio *plugin.ExecIO) (plugin.ExitStatus, error) {
	stdio.Started(0)
	limited, release := ctx, context.CancelFunc(func() {})
	if request.Timeout > 0 {
		limited, release = context.WithTimeout(ctx, request.Timeout)
	}
	defer release()
	var err error
	switch argv := request.Argv; {
	case argv[0] == "true":
	case argv[0] == "print" && len(argv) == 3:
		err = printZeros(limited, stdio.Stdout, argv[1], argv[2])
	case argv[0] == "discard":
		err = discard(stdio.Stdin)
	default:
		return plugin.Exited(127), nil
	}
	switch {
	case ctx.Err() != nil:
		return plugin.ExitStatus{}, ctx.Err()
	case limited.Err() != nil:
		return plugin.ExitStatus{Code: 124, Reason: plugin.ExitTimedOut}, nil
	case err != nil:
		return plugin.ExitStatus{}, err
	}
	return plugin.Exited(0), nil
}

// discard reads what the local driver would; io.Discard would read 8 KiB at a time.
func discard(stdin io.Reader) error {
	buffer := make([]byte, 256<<10)
	for {
		if _, err := stdin.Read(buffer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("discard: %w", err)
		}
	}
}

func printZeros(ctx context.Context, stdout io.Writer, count, size string) error {
	left, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return plugin.Errorf(plugin.KindInvalid, "print: %w", err)
	}
	chunkSize, err := strconv.Atoi(size)
	if err != nil || chunkSize <= 0 {
		return plugin.Errorf(plugin.KindInvalid, "print: %q is no chunk size", size)
	}
	chunk := make([]byte, chunkSize)
	for endless := left == 0; (endless || left > 0) && ctx.Err() == nil; left -= int64(len(chunk)) {
		if !endless {
			chunk = chunk[:min(int64(len(chunk)), left)]
		}
		if _, err := stdout.Write(chunk); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}
