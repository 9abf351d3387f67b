package sbxdouble

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// guestCommand is the hidden first argument that turns the program into the
// first process of a machine.
const guestCommand = "__machine"

// app is one invocation.
type app struct {
	config *Config
	store  store
}

// exitError carries an exit code up to Main; text has no prefix.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// fail is sbx's ordinary failure: exit 1 and a line on stderr.
func fail(format string, args ...any) error {
	return &exitError{code: 1, text: fmt.Sprintf(format, args...)}
}

// Main runs the program and returns its exit code.
func Main(args []string) int {
	if len(args) == 2 && args[0] == guestCommand {
		return guestMain(args[1])
	}
	config, err := loadConfig()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbxdouble:", err)
		return 70
	}
	a := &app{config: config, store: store{dir: config.StateDir}}
	tty := hasTerminal()
	if err := a.store.record(Call{Args: args, Env: os.Environ(), TTY: tty}); err != nil {
		fmt.Fprintln(os.Stderr, "sbxdouble:", err)
		return 70
	}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetOut(os.Stdout)
	root.SetErr(os.Stderr)
	err = root.Execute()
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: 1, text: err.Error()}
	}
	if exit.text != "" {
		fmt.Fprintln(os.Stderr, withPrefix(exit.text))
	}
	return exit.code
}

func withPrefix(text string) string {
	if strings.HasPrefix(text, "ERROR: ") {
		return text
	}
	return "ERROR: " + text
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "sbx",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.before(cmd) },
	}
	flags := root.PersistentFlags()
	flags.BoolP("debug", "D", false, "debug output")
	if a.config.atLeast(Gen042) {
		flags.Bool("cloud", false, "use cloud sandboxes")
	}
	if a.config.Generation == Gen045 && a.config.unknowns().NoInputFlag {
		flags.Bool("no-input", false, "never prompt; commands that need an answer fail")
	}
	root.AddCommand(a.createCommand(), a.execCommand(), a.lsCommand(), a.rmCommand(), a.stopCommand(), a.cpCommand(),
		a.policyCommand(), a.versionCommand(), a.loginCommand(), a.logoutCommand(), a.daemonCommand(), a.diagnoseCommand())
	for _, cmd := range root.Commands() {
		a.addNoise(cmd)
	}
	return root
}

// addNoise surrounds a command's payload with the lines that sbx is known to
// add to it: the daemon's start header and warnings before, the banner after.
func (a *app) addNoise(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.addNoise(sub)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.noise(cmd, a.config.DaemonHeader, "Starting sandboxd daemon...\nDaemon started (PID: 55276, socket: /run/sandboxd.sock)\nLogs: /run/daemon.log\n")
		a.noise(cmd, a.config.WarnLine, "WARN: could not acquire docker hub refresh lock, proceeding without cross-process lock: context deadline exceeded\n")
		err := run(cmd, args)
		a.noise(cmd, a.config.Banner, "\n\n╭──────────────────────────────────────╮\n│  Docker Sandboxes Update Available   │\n│  { v0.99.0 } [brew upgrade sbx]      │\n╰──────────────────────────────────────╯\n")
		return err
	}
}

func (a *app) noise(cmd *cobra.Command, stream, text string) {
	if stream == "" {
		return
	}
	toStdout := stream == "stdout"
	if cmd.Name() == "exec" {
		toStdout = a.config.unknowns().NoiseOnExecStdout
	}
	if toStdout {
		fmt.Fprint(os.Stdout, text)
	} else {
		fmt.Fprint(os.Stderr, text)
	}
}

// before runs ahead of every command: hangs and the sign-in check.
func (a *app) before(cmd *cobra.Command) error {
	name := cmd.Name()
	if cmd.Parent() != nil && cmd.Parent().Name() == "policy" {
		name = "policy " + name
	}
	if a.config.hangs(name) {
		hang()
	}
	switch cmd.Name() {
	case "version", "login", "logout", "diagnose", "status", "help", "init":
		return nil
	}
	if a.config.LoggedOut {
		return a.signIn(cmd)
	}
	return nil
}

// signIn refuses, or starts the device-code prompt that sbx starts on a terminal.
func (a *app) signIn(cmd *cobra.Command) error {
	noInput, _ := cmd.Flags().GetBool("no-input")
	if noInput || !hasTerminal() && !a.config.PromptOffTTY {
		return fail("You are not authenticated to Docker\n\nSign in with: sbx login")
	}
	fmt.Fprintln(os.Stderr, "Your one-time device confirmation code is: ABCD-EFGH\nPress ENTER to open your browser or submit your device code here: https://login.docker.com/activate")
	if opener, err := exec.LookPath("xdg-open"); err == nil {
		_ = exec.Command(opener, "https://login.docker.com/activate").Run()
	}
	hang()
	return nil
}

// hang never returns. To wait for nothing at all is a deadlock for Go's runtime.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// hasTerminal says whether the program could prompt: it has a controlling terminal.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	tty.Close()
	return true
}
