package sbx

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// program is Docker's sbx as it was found on this machine.
type program struct {
	path     string
	env      []string
	limit    time.Duration // for one call
	features features
}

// output is what one finished call said.
type output struct {
	stdout, stderr []byte
	code           int
}

func (o *output) text() string { return string(o.stderr) + "\n" + string(o.stdout) }

// outputLimit bounds what is kept of one stream of a call; listings of thousands
// of sandboxes fit.
const outputLimit = 16 << 20

// waitDelay is how long a stream may stay open after its process has ended.
const waitDelay = 2 * time.Second

// command prepares a call without a terminal: standard input is empty, and the
// process is in a session of its own, so that sbx cannot open /dev/tty to ask for
// a sign-in (docker/sbx-releases#406).
func (p *program) command(ctx context.Context, args ...string) *exec.Cmd {
	if p.features.NoInput {
		args = append([]string{"--no-input"}, args...)
	}
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Env = p.env
	cmd.WaitDelay = waitDelay
	detach(cmd)
	return cmd
}

// run makes one call to its end. An exit code above zero is no error here.
func (p *program) run(ctx context.Context, args ...string) (*output, error) {
	return p.runWithin(ctx, p.limit, args...)
}

// runWithin is run with a deadline of its own. sbx has none, and hangs for ever
// when its daemon is stalled (docker/sbx-releases#398, #542).
func (p *program) runWithin(ctx context.Context, limit time.Duration, args ...string) (*output, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	prompted, stop := context.WithCancel(bounded)
	defer stop()
	cmd := p.command(prompted, args...)
	stdout, stderr := &capture{onPrompt: stop}, &capture{onPrompt: stop}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if stdout.prompted() || stderr.prompted() {
		return nil, notSignedIn()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if bounded.Err() != nil {
		return nil, stalled(args, limit)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, plugin.Errorf(plugin.KindUnavailable, "cannot run %s: %w", p.path, err)
	}
	return &output{stdout: stdout.bytes(), stderr: stderr.bytes(), code: cmd.ProcessState.ExitCode()}, nil
}

// must is run for calls whose exit code has to be zero. What says what failed.
func (p *program) must(ctx context.Context, what string, args ...string) (*output, error) {
	out, err := p.run(ctx, args...)
	if err != nil {
		return nil, err
	}
	if out.code != 0 {
		return nil, explain(what, out.text())
	}
	return out, nil
}

func stalled(args []string, limit time.Duration) *plugin.Error {
	words := args
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			words = args[:i]
			break
		}
	}
	return plugin.Errorf(plugin.KindUnavailable, "sbx %s did not answer within %s: Docker's sandboxd daemon is stalled, or busy", strings.Join(words, " "), limit).
		WithHint("Look at `sbx diagnose`. If that hangs too, end the processes sbx and sandboxd and try again.")
}

// capture keeps the beginning of a stream and watches for the sign-in prompt,
// which some versions start where nobody can answer it.
type capture struct {
	onPrompt func()

	mu   sync.Mutex
	kept bytes.Buffer
	seen bool
}

// promptMark is the page at which a device code is entered.
const promptMark = "login.docker.com/activate"

func (c *capture) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := max(0, c.kept.Len()-len(promptMark))
	c.kept.Write(data[:min(len(data), outputLimit-c.kept.Len())])
	if !c.seen && bytes.Contains(c.kept.Bytes()[from:], []byte(promptMark)) {
		c.seen = true
		c.onPrompt()
	}
	return len(data), nil
}

func (c *capture) prompted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Bytes()
}

// sbxEnvironment is what sbx inherits: our own environment without what belongs to
// the plugin protocol, and the variables that the host passed on. BROWSER is a
// program that does nothing: sbx must not open a page on the user's desktop.
func sbxEnvironment(passed map[string]string) []string {
	env := []string{}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := passed[name]; replaced || strings.HasPrefix(name, "SANDBOXCTL_") || strings.HasPrefix(name, "PLUGIN_") || name == "BROWSER" {
			continue
		}
		env = append(env, entry)
	}
	for name, value := range passed {
		env = append(env, name+"="+value)
	}
	return append(env, "BROWSER=true")
}
