//go:build linux

// Command bench measures sandboxctl against its budgets, side by side with what a user
// could have instead: gVisor's bare runsc, docker and bubblewrap. It is run from the
// module's directory and needs the programs that `make build` makes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	bin, markdown string
	only          *regexp.Regexp
	runs          int
}

func parse(arguments []string) (options, error) {
	var parsed options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.StringVar(&parsed.bin, "bin", "bin", "the `directory` of sandboxctl and its drivers")
	flags.StringVar(&parsed.markdown, "markdown", "", "also write the results to this `file`, below the line "+marker+" if it has one")
	flags.IntVar(&parsed.runs, "runs", 21, "how often to run each short command; a transfer is run a fifth as often, but thrice at least")
	only := flags.String("only", "", "measure only what matches this `regexp`: "+strings.Join(names(), ", "))
	if err := flags.Parse(arguments); err != nil {
		return parsed, err
	}
	if parsed.runs < 1 {
		return parsed, errors.New("-runs has to be 1 at least")
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return parsed, fmt.Errorf("-only: %w", err)
	}
	parsed.only = pattern
	return parsed, nil
}

func run(ctx context.Context, arguments []string) (err error) {
	parsed, err := parse(arguments)
	if err != nil {
		return err
	}
	lab, err := newLab(ctx, parsed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.close()) }()

	results := newReport("go run ./scripts/bench " + strings.Join(arguments, " "))
	var failures []error
	for _, each := range experiments() {
		if !parsed.only.MatchString(each.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s\n", each.name)
		rows, err := each.run(ctx, lab)
		if ctx.Err() != nil {
			// What was measured before took its time, but is no whole table.
			return errors.Join(errors.New("interrupted"), results.print(os.Stdout))
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", each.name, err))
			rows = append(rows, row{what: each.name, note: "failed"})
		}
		results.rows = append(results.rows, rows...)
	}
	if err := results.print(os.Stdout); err != nil {
		return err
	}
	if parsed.markdown != "" {
		failures = append(failures, results.writeMarkdown(parsed.markdown))
	}
	return errors.Join(failures...)
}

// experiment measures one thing and all that it is compared with.
type experiment struct {
	name string
	run  func(context.Context, *lab) ([]row, error)
}

// experiments are in the order of the results.
func experiments() []experiment {
	return []experiment{
		{"version", measureVersion},
		{"ls", measureLs},
		{"exec", measureExec},
		{"create", measureCreate},
		{"stdout", measureStdout},
		{"stdin", measureStdin},
		{"cp", measureCp},
		{"yes", measureYes},
		{"kill", measureKill},
		{"network", measureNetwork},
		{"idle", measureIdle},
	}
}

func names() []string {
	var all []string
	for _, each := range experiments() {
		all = append(all, each.name)
	}
	return all
}
