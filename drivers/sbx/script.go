package sbx

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// The supervisor of a command in the guest. announceScript is an argument of sbx and
// says that a guest is there; the rest, with the command and its environment, follows
// on standard input, where it shows in no process list and has no limit of size.
var (
	//go:embed announce.sh
	announceScript string
	//go:embed tree.sh
	treeScript string
	//go:embed supervise.sh
	superviseScript string
)

// killGrace is how long a command has between TERM and KILL at its deadline.
const killGrace = 2 * time.Second

var validVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkVariables refuses what a shell in the guest could not set as it is.
func checkVariables(env map[string]string) error {
	for name, value := range env {
		if !validVariable.MatchString(name) {
			return plugin.Errorf(plugin.KindInvalid, "%q cannot be an environment variable in this sandbox: a name has letters, digits and underscores", name)
		}
		if strings.ContainsRune(value, 0) {
			return plugin.Errorf(plugin.KindInvalid, "the value of the environment variable %s holds a NUL byte", name)
		}
	}
	return nil
}

// newMark is what tells the supervisor's words from the command's bytes, which
// cannot know it.
func newMark() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// plan is what the supervisor is sent: a length, a newline and a program.
func plan(rec *record, request *plugin.ExecRequest, timeout time.Duration, withEnv bool) []byte {
	workdir := request.Workdir
	if workdir == "" {
		workdir = rec.Workdir
	}
	stdin := 0
	if request.Stdin {
		stdin = 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sbx_t=%d sbx_g=%d sbx_i=%d sbx_d=%s\n", int(timeout/time.Second), int(killGrace/time.Second), stdin, quote(workdir))
	b.WriteString("command_env() {\n:\n")
	if withEnv && rec.HasEnv {
		b.WriteString(". " + envFile + "\n")
	}
	b.WriteString(exports(request.Env) + "}\nset --")
	for _, arg := range request.Argv {
		b.WriteString(" " + quote(arg))
	}
	b.WriteString("\n" + treeScript + superviseScript)
	return fmt.Appendf(nil, "%d\n%s", b.Len(), b.String())
}

// exports is a shell program that sets variables.
func exports(env map[string]string) string {
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(env[name]))
	}
	return b.String()
}

// quote is a string as a shell reads it unchanged.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// wholeSeconds rounds a deadline up: sleep in the guest knows whole seconds only,
// and zero would be no deadline.
func wholeSeconds(timeout time.Duration) time.Duration {
	return (timeout + time.Second - 1) / time.Second * time.Second
}
