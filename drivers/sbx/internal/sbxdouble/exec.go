package sbxdouble

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Faults that one `sbx exec` can be told to have, see Config.ExecFaults.
const (
	ExecInspect  = "inspect"  // the command runs; its exit status cannot be fetched afterwards
	ExecDrop     = "drop"     // the stream breaks after the first output; the command goes on
	ExecRefused  = "refused"  // the daemon cannot be reached; nothing runs
	ExecExecutor = "executor" // the daemon has no executor for the sandbox; nothing runs
	ExecLinger   = "linger"   // the command ends and the client does not
	ExecRestart  = "restart"  // the sandbox auto-stops just before the exec reaches it
	ExecHang     = "hang"     // the daemon is stalled; nothing runs and the client never ends
)

func (a *app) execCommand() *cobra.Command {
	var interactive, tty, detach, privileged bool
	var env, envFile []string
	var user, dir, keys string
	cmd := &cobra.Command{Use: "exec [flags] SANDBOX COMMAND [ARG...]"}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.BoolVarP(&interactive, "interactive", "i", false, "keep stdin open")
	f.BoolVarP(&tty, "tty", "t", false, "allocate a terminal")
	f.BoolVarP(&detach, "detach", "d", false, "in the background")
	f.BoolVar(&privileged, "privileged", false, "more privileges")
	f.StringVar(&keys, "detach-keys", "", "keys")
	f.StringArrayVarP(&env, "env", "e", nil, "environment variable")
	f.StringArrayVar(&envFile, "env-file", nil, "file of environment variables")
	f.StringVarP(&user, "user", "u", "", "user")
	f.StringVarP(&dir, "workdir", "w", "", "working directory")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 && args[1] == "--" {
			args = append(args[:1:1], args[2:]...)
		}
		if len(args) < 2 {
			return fail("requires at least 2 arg(s), only received %d", len(args))
		}
		if detach {
			return fail("detached execution is not supported by the double")
		}
		return a.exec(args[0], execRequest{Args: args[1:], Env: expandEnv(env), Dir: dir, User: user, TTY: tty})
	}
	return cmd
}

func (a *app) exec(name string, request execRequest) error {
	box, err := a.store.load(name)
	if err != nil {
		return fail("no sandbox named '%s'\n\nTo create one:\n  sbx create AGENT WORKSPACE", name)
	}
	if request.TTY && !term.IsTerminal(int(os.Stdin.Fd())) {
		return fail("the input device is not a TTY")
	}
	fault := a.store.next("exec", a.config.ExecFaults)
	switch fault {
	case ExecRefused:
		return fail("daemon connection refused")
	case ExecExecutor:
		return fail("no sandbox executor available")
	case ExecRestart:
		a.halt(name)
	case ExecHang:
		hang()
	}
	started, err := a.boot(box)
	if err != nil {
		return fail("request failed: 500 Internal Server Error: %v", err)
	}
	if started {
		fmt.Fprintf(os.Stderr, "Sandbox %s started successfully\n", name)
	}
	request.Env = append(append([]string{}, box.Env...), request.Env...)
	conn, err := a.dial(name)
	if err != nil {
		return fail("daemon connection refused: %v", err)
	}
	defer conn.Close()
	return a.attach(conn, name, request, fault)
}

// attach relays one command; the machine owns it and goes on without us.
func (a *app) attach(conn net.Conn, name string, request execRequest, fault string) error {
	out := &frames{out: conn}
	if request.TTY {
		restore, err := rawTerminal(out, &request)
		if err != nil {
			return err
		}
		defer restore()
	}
	if err := out.writeJSON(frameStart, request); err != nil {
		return fail("daemon connection refused: %v", err)
	}
	// Standard input is forwarded whether -i was given or not, as sbx does.
	go func() {
		_ = out.pump(frameStdin, os.Stdin)
		_ = out.write(frameStdinEOF, nil)
	}()
	for {
		kind, payload, err := readFrame(conn)
		if err != nil {
			return fail("inspect exec: Get \"http://socket/sandbox/%s/exec/1\": unexpected EOF", name)
		}
		switch kind {
		case frameStdout:
			_, err = os.Stdout.Write(payload)
		case frameStderr:
			_, err = os.Stderr.Write(payload)
		case frameExit:
			return a.finish(name, fault, payload)
		}
		if err != nil {
			return fail("write: %v", err)
		}
		if fault == ExecDrop {
			return fail("exec stream: unexpected EOF")
		}
	}
}

func (a *app) finish(name, fault string, payload []byte) error {
	switch fault {
	case ExecInspect:
		return fail("inspect exec: Get \"http://socket/sandbox/%s/exec/1\": context deadline exceeded", name)
	case ExecLinger:
		hang()
	}
	var code int
	if err := json.Unmarshal(payload, &code); err != nil {
		return err
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}
