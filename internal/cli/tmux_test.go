//go:build linux

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

// window is a shell in a tmux of its own, with sandboxctl on its PATH: what a person sees.
type window struct {
	t      *testing.T
	socket string
	// lines are those that were run, so that their ends can be told apart.
	lines int
}

// openWindow opens a window of so many columns and 24 rows.
func openWindow(t *testing.T, env []string, programs string, columns int) *window {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("there is NO tmux here, so NOTHING was looked at; scripts/test-setup.sh installs it")
	}
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &window{t: t, socket: filepath.Join(dir, "s")}
	start := w.command("new-session", "-d", "-x", fmt.Sprint(columns), "-y", "24", "sh")
	start.Env = append(env, "PATH="+programs+":"+os.Getenv("PATH"), "ENV=", "TERM=xterm", "TMUX=", "LC_ALL=C.UTF-8")
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() { w.tmux("kill-server") })
	w.enter("PS1='o'ut'$ '; clear")
	w.await("out$")
	return w
}

func (w *window) command(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-S", w.socket, "-f", "/dev/null"}, args...)...)
}

func (w *window) tmux(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.t.Errorf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// enter types a line.
func (w *window) enter(line string) {
	w.t.Helper()
	w.tmux("send-keys", "-l", line)
	w.tmux("send-keys", "Enter")
}

// screen is the text that is shown, without blank lines at its end.
func (w *window) screen() string {
	w.t.Helper()
	return strings.TrimRight(w.tmux("capture-pane", "-p"), "\n")
}

func (w *window) await(text string) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the screen:\n%s", w.screen())
		}
	}()
	await(w.t, fmt.Sprintf("%q on the screen", text), func() bool { return strings.Contains(w.screen(), text) })
}

// run clears the screen and runs a line to its end.
func (w *window) run(line string) {
	w.t.Helper()
	w.lines++
	w.enter(fmt.Sprintf("clear; %s; echo done''-%d", line, w.lines))
	w.await(fmt.Sprintf("done-%d", w.lines))
}

// resize gives the window another size, at the shell's prompt; tmux is in no hurry to.
func (w *window) resize(columns, rows int) {
	w.t.Helper()
	w.tmux("resize-window", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows))
	w.run(fmt.Sprintf(`until [ "$(stty size)" = "%d %d" ]; do sleep 0.05; done`, rows, columns))
}

// shows runs a line and compares all that is shown.
func (w *window) shows(line, want string) {
	w.t.Helper()
	w.run(line)
	if got, _, _ := strings.Cut(w.screen(), "\ndone"); got != want {
		w.t.Errorf("%s shows\n%s\nand should show\n%s", line, got, want)
	}
}

func TestShellInTmux(t *testing.T) {
	env := localEnv(t)
	run(t, env, "create", "--name", "box")
	w := openWindow(t, env, buildDrivers(t, module+"/cmd/sandboxctl"), 80)
	w.enter(`before=$(stty -g); clear`)
	w.enter("sandboxctl shell box")
	w.await("#") // the guest's root has a prompt
	w.enter("stty size")
	w.await("24 80")
	w.tmux("resize-window", "-x", "100", "-y", "30")
	w.enter("until stty size | grep '30 1''00'; do sleep 0.1; done")
	w.await("30 100")

	// Ctrl-C is a key for the command, and neither the end of the shell nor of sandboxctl.
	w.enter(`sh -c 'echo "run"ning; exec sleep 1000'`)
	w.await("running")
	w.tmux("send-keys", "C-c")
	w.enter(`echo "ended with $?"`)
	w.await("ended with 130")
	w.enter("exit 7")
	w.await("exit\nout$") // what is typed before that is the sandbox's
	w.enter(`echo "left with $?"`)
	w.await("left with 7")
	w.enter(`[ "$before" = "$(stty -g)" ] && echo "terminal as bef""ore"`)
	w.await("terminal as before")

	// Without -i nothing is typed into the command, so that Ctrl-C is for sandboxctl.
	w.enter(`clear; sandboxctl exec -t box -- sh -c 'echo "run"ning; exec sleep 1000'`)
	w.await("running")
	w.tmux("send-keys", "C-c")
	w.await("\nout$")
	w.enter(`echo "left with $?"`)
	w.await("left with 130")
	w.enter(`[ "$before" = "$(stty -g)" ] && echo "terminal as bef""ore"`)
	w.await("terminal as before")
}

func TestScreens(t *testing.T) {
	p := newFaultyPlace(t, buildFaultyPlaces(t), "")
	w := openWindow(t, p.env, p.dir, 80)
	w.shows("sandboxctl ls", "No sandboxes. Create one with `sandboxctl create`.")
	w.shows("sandboxctl inspect nope", "sandboxctl: there is no sandbox \"nope\"\nhint: run `sandboxctl ls` to see yours")
	w.shows("sandboxctl rm nope nada", "sandboxctl: there is no sandbox \"nope\"\nhint: run `sandboxctl ls` to see yours\n"+
		"sandboxctl: there is no sandbox \"nada\"\nhint: run `sandboxctl ls` to see yours\nsandboxctl: removing sandboxes: 2 of 2 failed")
	w.shows("sandboxctl create --memorry 1g", "sandboxctl: unknown flag: --memorry\nhint: see `sandboxctl create --help`")

	t.Run("help breaks its lines between words", func(t *testing.T) {
		w.resize(80, 60)
		w.run("sandboxctl help exec")
		// -J joins what the terminal itself has broken.
		for line := range strings.Lines(w.tmux("capture-pane", "-p", "-J")) {
			if line = strings.TrimRight(line, " \n"); len(line) > 80 {
				t.Errorf("the line %q is longer than the terminal", line)
			}
		}
		w.resize(80, 24)
	})
	t.Run("a slow create says what goes on, and nothing of it stays", func(t *testing.T) {
		w.resize(50, 24)
		p.closeGate(faultdriver.StepTold)
		w.enter("clear; sandboxctl create --name a-name-that-is-as-long-as-names-can-be-in-a-pipeline-0123456789")
		w.await("creating a-name-that-is...6789 with driver faulty")
		if lines := strings.Split(w.screen(), "\n"); len(lines) != 1 {
			t.Errorf("the status takes more than a line: %q", lines)
		}
		p.openGate(faultdriver.StepTold)
		w.await("0123456789\nout$")
		w.resize(80, 24)
	})
	t.Run("a quiet create says nothing of what goes on", func(t *testing.T) {
		p.closeGate(faultdriver.StepTold)
		w.enter("clear; sandboxctl create --quiet --name quiet")
		p.awaitGate(faultdriver.StepTold)
		if said := w.screen(); strings.Contains(said, "driver") {
			t.Errorf("it says %q", said)
		}
		p.openGate(faultdriver.StepTold)
		w.await("quiet\nout$")
	})
	p.must("create", "--name", "short")
	w.run("sandboxctl ls")
	for line := range strings.Lines(w.screen()) {
		if len(line) > 81 || strings.HasPrefix(line, "faulty") {
			t.Errorf("the table is wider than the terminal:\n%s", w.screen())
		}
	}
	if !strings.Contains(w.screen(), "...") {
		t.Errorf("the long name is not shortened:\n%s", w.screen())
	}
	if colours := w.tmux("capture-pane", "-e", "-p"); !strings.Contains(colours, "\x1b[1mNAME") {
		t.Errorf("the heading is not bold: %q", colours)
	}
	for _, plain := range []string{"NO_COLOR=1", "TERM=dumb"} {
		w.run(plain + " sandboxctl ls")
		if colours := w.tmux("capture-pane", "-e", "-p"); strings.Contains(colours, "\x1b[1m") {
			t.Errorf("with %s there is colour: %q", plain, colours)
		}
	}
	w.run("sandboxctl ls | cat")
	w.await("a-name-that-is-as-long-as-names-can-be-in-a-pipeline-0123456789")
}
