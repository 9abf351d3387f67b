package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/plugin/conformance"
)

// describeTimeout bounds the question who a binary is.
const describeTimeout = 5 * time.Second

type driverTestOptions struct {
	run, image, against string
	options             []string
	parallel            int
}

func (a *App) newDriverTestCommand() *cobra.Command {
	options := &driverTestOptions{}
	command := &cobra.Command{
		Use:   "test DRIVER|PATH",
		Short: "Check that a driver keeps its promises",
		Long: `Test runs the conformance suite against a driver, over the real protocol and for real:
it creates sandboxes, runs commands in them and removes them. A case that needs a
capability is skipped only when the driver does not claim it. The exit code is 0 when
nothing failed and 1 when something did.`,
		Example: `  sandboxctl driver test local
  sandboxctl driver test ./bin/sandboxctl-driver-acme --run '^exec'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one driver or the path of one, not %d", len(args))
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.run, "run", "", "only cases whose id matches this `REGEX`")
	flags.StringVar(&options.image, "image", "", "the image of the sandboxes (default: the driver's)")
	flags.StringArrayVar(&options.options, "opt", nil, "a driver option for the sandboxes, `K=V`; may be repeated")
	flags.IntVar(&options.parallel, "parallel", 0, "how many cases run at once (default 4)")
	flags.StringVar(&options.against, "checked-against", "", "what the report says stood behind the driver")
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runDriverTest(ctx, options, args[0])
	})
}

// driverTestResult is the JSON of driver test.
type driverTestResult struct {
	output.Header
	conformance.Report
}

func (r *driverTestResult) Text(p *output.Printer) {
	p.Line("%s: %d passed, %d failed, %d skipped in %.0f s", r.Driver, r.Passed, r.Failed, r.Skipped, r.Seconds)
}

func (a *App) runDriverTest(ctx context.Context, options *driverTestOptions, driver string) (output.Result, error) {
	choice := conformance.Options{Parallel: options.parallel, Result: a.showCase}
	var err error
	if options.run != "" {
		if choice.Run, err = regexp.Compile(options.run); err != nil {
			return nil, usagef("--run: %w", err)
		}
	}
	pairs, err := parsePairs("--opt", options.options)
	if err != nil {
		return nil, &usageError{err}
	}
	target, release, err := a.testTarget(ctx, driver)
	if err != nil {
		return nil, err
	}
	defer release()
	target.Image, target.Options, target.CheckedAgainst = options.image, pairs, options.against
	report, err := conformance.Run(ctx, target, choice)
	if err != nil {
		return nil, err
	}
	result := &driverTestResult{Report: report}
	if report.Failed > 0 {
		return result, &hintedError{fmt.Errorf("%d of %d cases failed", report.Failed, len(report.Results)), "run one again with --run '^CASE$' --debug"}
	}
	return result, nil
}

// testTarget takes an argument with a separator for a path and any other for a name. A
// binary is tested with a state directory of its own, which is removed afterwards.
func (a *App) testTarget(ctx context.Context, driver string) (target conformance.Target, release func(), err error) {
	if !strings.ContainsRune(driver, filepath.Separator) {
		hosts, err := a.drivers()
		if err != nil {
			return target, nil, err
		}
		return conformance.Hosted(hosts, driver), func() {}, nil
	}
	path, err := filepath.Abs(driver)
	if err != nil {
		return target, nil, err
	}
	name, err := driverName(ctx, path)
	if err != nil {
		return target, nil, err
	}
	state, err := os.MkdirTemp("", "sandboxctl-driver-test")
	if err != nil {
		return target, nil, err
	}
	return conformance.Binary(conformance.BinaryOptions{
		Name: name, Path: path, Settings: a.config.Drivers[name].Settings, StateDir: state, Environ: a.Environ,
	}), func() { _ = os.RemoveAll(state) }, nil
}

// driverName is in the name of the file, or the driver says it itself.
func driverName(ctx context.Context, path string) (string, error) {
	base := strings.TrimSuffix(filepath.Base(path), ".exe")
	if name, found := strings.CutPrefix(base, "sandboxctl-driver-"); found {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--describe").Output()
	var described struct{ Name string }
	if err == nil {
		err = json.Unmarshal(out, &described)
	}
	if err != nil || described.Name == "" {
		return "", &hintedError{fmt.Errorf("%s does not say that it is a driver (--describe: %v)", path, err), "name it sandboxctl-driver-NAME, or serve it with package plugin"}
	}
	return described.Name, nil
}

// showCase tells people how a case ended as soon as it has.
func (a *App) showCase(result conformance.Result) {
	if a.printer.Format() == output.JSON {
		return
	}
	line := fmt.Sprintf("%s  %-40s %6.2fs", a.printer.Mark(string(result.Outcome), result.Outcome != conformance.Failed), result.ID, result.Seconds)
	if result.Detail != "" {
		line += "  " + output.Printable(result.Detail)
	}
	a.printer.Line("%s", line)
}
