//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// minimalEnv is the surroundings of one test with the teaching driver, and the path of
// its binary.
func minimalEnv(t *testing.T) (env []string, driver string) {
	t.Helper()
	driver = filepath.Join(buildDrivers(t, module+"/examples/driver-minimal"), "driver-minimal")
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	content := fmt.Sprintf("driver: minimal\ndrivers:\n  minimal: {path: %s}\n", driver)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	env = append(os.Environ(), "SANDBOXCTL_CONFIG="+config, "SANDBOXCTL_STATE_DIR="+filepath.Join(dir, "state"), "TERM=xterm")
	return env, driver
}

// shellWithCompletion starts a shell that has read nobody's configuration on a terminal,
// and types what makes it ready: Ctrl-T has to show the line that is being edited as
// LINE<...>. SCRIPT stands for the path of one of the committed scripts.
func shellWithCompletion(t *testing.T, env []string, dir, script, setup string, line ...string) *terminal {
	t.Helper()
	program, err := exec.LookPath(line[0])
	if err != nil {
		t.Skipf("there is NO %s here, so its completion was NOT tested", line[0])
	}
	// Not this test's own binary, which takes a second to start under the race detector.
	path := buildDrivers(t, module+"/cmd/sandboxctl")
	script, err = filepath.Abs(filepath.Join("../../completions", script))
	if err != nil {
		t.Fatal(err)
	}
	// Fish makes a pipe in it, or in /tmp if others can read it.
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	shell := openTerminal(t, &exec.Cmd{
		Path: program, Args: line, Dir: dir,
		Env: append(env, "PATH="+path+":"+os.Getenv("PATH"), "PS1=$ ", "INPUTRC=/dev/null", "HISTFILE=", "HOME="+t.TempDir(), "XDG_RUNTIME_DIR="+private),
	})
	shell.typed(strings.ReplaceAll(setup, "SCRIPT", script) + "\necho re''ady\n")
	shell.await("ready")
	return shell
}

// bashSetup is for a bash that knows nothing but our script, as in a container without
// the bash-completion package.
const bashSetup = `stty -echo; source SCRIPT
bind -x '"\C-t": printf "LINE<%s>\n" "$READLINE_LINE"'`

// completions is what somebody has who presses Tab.
type completions struct {
	shell *terminal
	// erase are the keys that show the line and then empty it.
	keys string
}

func (c completions) complete(typed, want string) {
	c.shell.t.Helper()
	c.shell.typed(typed + "\t" + c.keys)
	c.shell.await("LINE<" + want + ">")
}

// completionPlace makes sandboxes alpha and beta, and files in alpha and here.
func completionPlace(t *testing.T) (env []string, driver, here string) {
	t.Helper()
	env, driver = minimalEnv(t)
	here = t.TempDir()
	for _, name := range []string{"local file", "tree/a name", "tree/first", "tree/.hidden"} {
		path := filepath.Join(here, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, env, "create", "--network", "open", "--name", "alpha")
	run(t, env, "create", "--network", "open", "--name", "beta")
	t.Cleanup(func() { run(t, env, "rm", "-f", "--all") })
	run(t, env, "cp", filepath.Join(here, "tree"), "alpha:tree")
	return env, driver, here
}

func TestCompletionInBash(t *testing.T) {
	env, driver, here := completionPlace(t)
	shell := shellWithCompletion(t, env, here, "sandboxctl.bash", bashSetup, "bash", "--norc", "--noprofile", "-i")
	complete := completions{shell, "\x14\x15"}.complete

	complete("sandboxctl insp", "sandboxctl inspect ")
	complete("sandboxctl inspect al", "sandboxctl inspect alpha ")
	complete("sandboxctl exec al", "sandboxctl exec alpha ")
	complete("sandboxctl rm alpha ", "sandboxctl rm alpha beta ")
	complete("sandboxctl help exit", "sandboxctl help exit-codes ")
	complete("sandboxctl create --driver min", "sandboxctl create --driver minimal ")
	complete("sandboxctl create --driver=min", "sandboxctl create --driver=minimal ")
	complete("sandboxctl create --network=o", "sandboxctl create --network=open ")
	complete("sandboxctl driver info min", "sandboxctl driver info minimal ")
	complete("sandboxctl ls al", "sandboxctl ls alpha:")
	complete("sandboxctl ls alpha:tr", "sandboxctl ls alpha:tree/")
	complete("sandboxctl cp alpha:tree/fi", "sandboxctl cp alpha:tree/first ")
	complete("sandboxctl cp alpha:tree/a", `sandboxctl cp alpha:tree/a\ name `)
	complete("sandboxctl cp alpha:tree/.h", "sandboxctl cp alpha:tree/.hidden ")
	complete("sandboxctl cp alpha:tree/first be", "sandboxctl cp alpha:tree/first beta:")
	complete("sandboxctl cp loc", `sandboxctl cp local\ file `)

	// Names come from the ledger: there need not be a driver.
	if err := os.Rename(driver, driver+".away"); err != nil {
		t.Fatal(err)
	}
	complete("sandboxctl renew al", "sandboxctl renew alpha ")

	// A driver that does not answer holds the Tab key for a second, not for ever.
	if err := os.WriteFile(driver, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	out := run(t, env, "__complete", "ls", "alpha:tr")
	if took := time.Since(start); took > 5*time.Second || strings.Contains(out, "tree") {
		t.Errorf("completing with a driver that hangs took %s and offered %q", took, out)
	}
	if err := os.Rename(driver+".away", driver); err != nil {
		t.Fatal(err)
	}
}
