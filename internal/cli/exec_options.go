package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/config"
	"github.com/sandboxctl/sandboxctl/internal/spec"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// defaultMaxOutput is how much of each stream JSON carries: small enough that the
// object is not cut by agent harnesses, which keep some 30,000 characters.
const defaultMaxOutput = 16 << 10

// largestOutput bounds --max-output, which is memory.
const largestOutput = 64 << 20

// execOptions are the flags that exec and run share.
type execOptions struct {
	interactive, tty, shell bool

	timeout, user, maxOutput, resultFile string
}

func (o *execOptions) flags(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.interactive, "interactive", "i", false, "pass stdin on to the command; without it the command's stdin is empty")
	flags.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	flags.StringVar(&o.timeout, "timeout", "", "kill the command and all that it started after this `DURATION`; the exit code is then 124")
	flags.StringVarP(&o.user, "user", "u", "", "run as this user, a name or uid with an optional :group")
	flags.BoolVar(&o.shell, "shell", false, "take one string and run it with the sandbox's sh -c")
	flags.StringVar(&o.maxOutput, "max-output", "", "with --json: keep this `SIZE` from the end of each stream (default 16k)")
	flags.StringVar(&o.resultFile, "result-file", "", "write the JSON result to this `FILE`; stdout stays the command's own")
}

// command checks the flags and turns them into a request. Its errors are about usage.
func (o *execOptions) command(a *App, argv []string) (*plugin.ExecRequest, error) {
	request, err := o.parse(a, argv)
	if err != nil {
		return nil, &usageError{err}
	}
	return request, nil
}

func (o *execOptions) parse(a *App, argv []string) (*plugin.ExecRequest, error) {
	argv, err := o.argv(argv)
	if err != nil {
		return nil, err
	}
	if o.tty && a.printer.Format() == output.JSON {
		return nil, fmt.Errorf("--tty and --json do not go together: a terminal has no separate output to report")
	}
	if o.tty && (!output.IsTerminal(a.Stdout) || o.interactive && !output.IsTerminal(a.Stdin)) {
		return nil, fmt.Errorf("--tty needs a terminal, and here is none; leave it out")
	}
	if _, err := o.outputLimit(); err != nil {
		return nil, err
	}
	if err := spec.CheckText(map[string]string{"--user": o.user}); err != nil {
		return nil, err
	}
	timeout, err := parseTimeout(o.timeout)
	if err != nil {
		return nil, err
	}
	return &plugin.ExecRequest{
		Argv: argv, User: o.user, Stdin: o.interactive, TTY: o.tty, Timeout: timeout,
	}, nil
}

func (o *execOptions) argv(argv []string) ([]string, error) {
	switch {
	case len(argv) == 0:
		return nil, fmt.Errorf("name the command to run, as in `-- python3 script.py`")
	case o.shell && len(argv) != 1:
		return nil, fmt.Errorf("--shell takes one string, not %d; quote it: --shell ... -- 'a && b'", len(argv))
	case o.shell:
		argv = []string{"sh", "-c", argv[0]}
	case argv[0] == "":
		return nil, fmt.Errorf("the command's name is empty")
	}
	for _, argument := range argv {
		if strings.ContainsRune(argument, 0) {
			return nil, fmt.Errorf("an argument holds a NUL byte, which no program can receive")
		}
	}
	return argv, nil
}

func (o *execOptions) outputLimit() (int, error) {
	if o.maxOutput == "" {
		return defaultMaxOutput, nil
	}
	size, err := spec.ParseSize(o.maxOutput)
	if err != nil {
		return 0, fmt.Errorf("--max-output %w", err)
	}
	if size == 0 || size > largestOutput {
		return 0, fmt.Errorf("--max-output %s: take a size from 1 byte to 64m; it is memory", o.maxOutput)
	}
	return int(size), nil
}

// parseTimeout rounds up to whole seconds, since to some backends a fraction is zero
// and zero is for ever.
func parseTimeout(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	timeout, err := config.ParseDuration("--timeout", text)
	if err != nil {
		return 0, err
	}
	if timeout == 0 {
		return 0, fmt.Errorf("--timeout 0: take a duration above zero, or leave it out for no limit")
	}
	return time.Duration(math.Ceil(timeout.Seconds())) * time.Second, nil
}

// stopAtCommand ends a command's flags at its first argument, so that the guest
// command's own flags are left alone.
func stopAtCommand(command *cobra.Command) {
	command.Flags().SetInterspersed(false)
	if command.Annotations == nil {
		command.Annotations = map[string]string{}
	}
	command.Annotations[passesExitCode] = "yes"
}
