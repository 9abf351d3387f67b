package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxctl/sandboxctl/internal/cli"
	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// TestMain lets scripts run this binary as sandboxctl, in a process of its own.
func TestMain(m *testing.M) {
	testscript.Main(withSignals{m}, map[string]func(){
		"sandboxctl": func() {
			ctx, stop := cli.WithSignals(context.Background(), os.Exit)
			app := cli.NewApp(cli.Build{Version: "1.2.3-test"})
			written := &lastLine{to: app.Stdout}
			if !output.IsTerminal(app.Stdout) {
				app.Stdout = written
			}
			code := app.Execute(ctx, os.Args[1:])
			stop()
			// Every JSON that a test sees is checked, whatever the test looks for in it.
			if err := written.check(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = exitInvalidJSON
			}
			os.Exit(code)
		},
	})
}

// withSignals runs the tests so that what they start does not inherit ignored signals,
// as when the tests themselves run under nohup or in the background of a script.
type withSignals struct{ *testing.M }

func (m withSignals) Run() int {
	for _, each := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(each) {
			signal.Notify(make(chan os.Signal, 1), each)
		}
	}
	return m.M.Run()
}

// exitInvalidJSON is no exit code of sandboxctl, so no script can expect it.
const exitInvalidJSON = 70

// buildDrivers builds driver binaries once for all scripts, where go's cache makes it
// cheap. They are not made for the race detector: what is tested here is the process.
func buildDrivers(t testing.TB, packages ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "drivers")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// Drivers that others could replace are refused.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := plugintest.Build(dir, packages...); err != nil {
		t.Fatal(err)
	}
	return dir
}

const module = "github.com/sandboxctl/sandboxctl"

// TestPlain runs what needs no sandbox or is content with the teaching driver.
func TestPlain(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts use a POSIX shell")
	}
	runScripts(t, "testdata/plain", "minimal", buildDrivers(t, module+"/examples/driver-minimal"))
}

// TestLocal runs the embedded gVisor driver for real.
func TestLocal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("gVisor runs on Linux only")
	}
	dir := buildDrivers(t, module+"/drivers/local/cmd/sandboxctl-driver-local", module+"/drivers/local/cmd/sandboxctl-guest")
	runScripts(t, "testdata/local", "local", dir)
}

func runScripts(t *testing.T, dir, driver, drivers string) {
	binary := filepath.Join(drivers, "sandboxctl-driver-"+driver)
	if driver == "minimal" {
		if err := os.Rename(filepath.Join(drivers, "driver-minimal"), binary); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := filepath.Abs("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			config := filepath.Join(env.WorkDir, ".config.yaml")
			content := fmt.Sprintf("driver: %s\ndrivers:\n  %s: {path: %s}\n", driver, driver, binary)
			env.Setenv("SANDBOXCTL_CONFIG", config)
			env.Setenv("SANDBOXCTL_STATE_DIR", filepath.Join(env.WorkDir, ".state"))
			env.Setenv("HOME", env.WorkDir)
			// A program built for the race detector otherwise sleeps a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("DRIVER", binary)
			env.Setenv("GOLDEN", golden)
			env.Values[registryKey{}] = &testRegistry{}
			// Nothing may outlive a script, however it ends.
			env.Defer(func() { removeAll(t, env) })
			return os.WriteFile(config, []byte(content), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"rc":          scriptExitCode,
			"json":        scriptJSON,
			"golden":      scriptGolden,
			"killsandbox": scriptKillSandbox,
			"killkeeper":  scriptKillKeeper,
			"expired":     scriptExpired,
			"await":       scriptAwait,
			"makeimage":   scriptMakeImage,
			"registry":    scriptRegistry,
		},
	})
}

func removeAll(t *testing.T, env *testscript.Env) {
	command := exec.Command(filepath.Join(filepath.SplitList(env.Getenv("PATH"))[0], "sandboxctl"), "rm", "-f", "--all")
	command.Env = env.Vars
	if out, err := command.CombinedOutput(); err != nil {
		t.Logf("removing what a script left: %v\n%s", err, out)
	}
}

// scriptExitCode runs a command and compares its exit code: rc 3 sandboxctl ...
func scriptExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: rc CODE COMMAND [ARG...]")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// scriptJSON checks that the last stdout is one JSON object on one line, and a field of
// it: json error.class not_found. "-" as the value means that the field is absent.
func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	out := ts.ReadFile("stdout")
	if strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, "\n") {
		ts.Fatalf("stdout is not one line: %q", out)
	}
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		ts.Fatalf("stdout is not JSON: %v", err)
	}
	if object["schema"] != "sandboxctl/v1" || object["kind"] == "" {
		ts.Fatalf("stdout has no header: %s", out)
	}
	if len(args) == 0 {
		return
	}
	var value any = object
	for _, key := range strings.Split(args[0], ".") {
		inner, ok := value.(map[string]any)
		if list, isList := value.([]any); isList {
			var index int
			if _, err := fmt.Sscan(key, &index); err == nil && index < len(list) {
				value = list[index]
				continue
			}
		}
		if !ok || inner[key] == nil {
			value = "-"
			break
		}
		value = inner[key]
	}
	got := fmt.Sprint(value)
	if (got == args[1]) == neg {
		ts.Fatalf("%s is %q, want (negated: %v) %q in %s", args[0], got, neg, args[1], out)
	}
}

// scriptKillSandbox kills a local sandbox's process behind sandboxctl's back.
func scriptKillSandbox(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killsandbox NAME")
	}
	var inspected struct {
		Details struct{ PID int }
	}
	ts.Check(ts.Exec("sandboxctl", "inspect", "--json", args[0]))
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &inspected))
	process, err := os.FindProcess(inspected.Details.PID)
	ts.Check(err)
	ts.Check(process.Kill())
	// The kernel needs a moment to take the process away.
	for deadline := time.Now().Add(10 * time.Second); process.Signal(syscall.Signal(0)) == nil; {
		if time.Now().After(deadline) {
			ts.Fatalf("process %d is still there", inspected.Details.PID)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// scriptKillKeeper kills the keeper of a local sandbox and waits for its end.
func scriptKillKeeper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killkeeper NAME")
	}
	var inspected struct {
		Details struct{ Directory string }
	}
	ts.Check(ts.Exec("sandboxctl", "inspect", "--json", args[0]))
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &inspected))
	keeper := func() string {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			if line, _ := os.ReadFile(file); strings.HasPrefix(string(line), "sandboxctl-keeper\x00"+inspected.Details.Directory) {
				return strings.Split(file, "/")[2]
			}
		}
		return ""
	}
	pid, err := strconv.Atoi(keeper())
	ts.Check(err)
	process, err := os.FindProcess(pid)
	ts.Check(err)
	ts.Check(process.Kill())
	for deadline := time.Now().Add(time.Minute); keeper() != ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("the keeper %d is still there", pid)
		}
	}
}

// scriptExpired waits for the end of a sandbox's lease.
func scriptExpired(ts *testscript.TestScript, neg bool, args []string) {
	var inspected struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	ts.Check(ts.Exec("sandboxctl", "inspect", "--json", args[0]))
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &inspected))
	time.Sleep(time.Until(inspected.ExpiresAt))
}

// scriptAwait waits until a command succeeds: await sandboxctl ...
func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	deadline := time.Now().Add(time.Minute)
	for {
		err := ts.Exec(args[0], args[1:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited a minute for %q (negated: %v)", strings.Join(args, " "), neg)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
