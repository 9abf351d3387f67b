package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func execCases() []Case {
	return []Case{
		{
			ID: "exec.exit-codes", Group: GroupExec, run: checkExitCodes,
			Reason: "the command's own status is the result, whatever a wrapper's statuses are",
			Source: "airflow 38, 39, 40; reports 3, 4, 5",
		},
		{
			ID: "exec.not-found", Group: GroupExec, run: checkNotFound,
			Reason: "127 and 126 tell a typing error from a failing program, on every backend alike",
			Source: "reports 2",
		},
		{
			ID: "exec.signals-of-guest", Group: GroupExec, run: checkKilled,
			Reason: "a crash is 128+n and quick, never a timeout",
			Source: "airflow 37, 42; reports 7",
		},
		{
			ID: "exec.argv", Group: GroupExec, run: checkArgv,
			Reason: "argv is argv: no shell may look at it on the way",
			Source: "airflow 24; design 3",
		},
		{
			ID: "exec.long-argument", Group: GroupExec, run: checkLongArgument,
			Reason: "an argument of 100 KB is legal on Linux, one that is too long must be an error and not a hang",
			Source: "airflow 58; reports 50",
		},
		{
			ID: "exec.env", Group: GroupExec, run: checkExecEnv,
			Reason: "values with spaces, quotes or newlines arrive as they are, and only for this command",
			Source: "airflow 54, 82",
		},
		{
			ID: "exec.env-path", Group: GroupExec, run: checkExecPath,
			Reason: "a variable that the backend sets itself is overridden, not dropped",
			Source: "airflow 83",
		},
		{
			ID: "exec.workdir", Group: GroupExec, run: checkExecWorkdir,
			Reason: "a command that runs in the wrong directory deletes the wrong files",
			Source: "airflow 73; design 5",
		},
		{
			ID: "exec.fresh-process", Group: GroupExec, run: checkFreshProcess,
			Reason: "each command starts afresh; only files stay",
			Source: "airflow 54",
		},
		{
			ID: "exec.umask", Group: GroupExec, run: checkUmask,
			Reason: "a wrapper that changes the umask makes files that others cannot read",
			Source: "airflow 56",
		},
		{
			ID: "exec.no-traces", Group: GroupExec, run: checkNoTraces,
			Reason: "a command that prints a word must not leave the driver's scratch files behind",
			Source: "airflow 56",
		},
		{
			ID: "exec.user", Group: GroupExec, Needs: []Need{needsUser}, run: checkUser,
			Reason: "a claimed user that is ignored runs everything as root",
			Source: "design 5",
		},
	}
}

func checkExitCodes(t *T) {
	box := t.shared()
	for _, code := range []int{0, 1, 2, 3, 42, 64, 99, 124, 125, 126, 127, 128, 137, 143, 255} {
		what := fmt.Sprintf("exit %d", code)
		got := box.exec(shell(what))
		// A backend may be unable to tell exit 137 from a kill; neither is a timeout.
		reasons := []plugin.ExitReason{plugin.ExitExited}
		if code > 128 && code < 160 {
			reasons = append(reasons, plugin.ExitSignaled)
		}
		t.wantExit(what, got, code, reasons...)
		if got.stdout+got.stderr != "" {
			t.Errorf("%s printed %s %s", what, short(got.stdout), short(got.stderr))
		}
	}
	got := box.exec(&plugin.ExecRequest{Argv: []string{"sh", "-c", "exit 124"}, Timeout: stuck})
	t.wantExit("exit 124 within its time", got, 124)
}

func checkNotFound(t *T) {
	box := t.shared()
	for command, code := range map[string]int{"no-such-command": 127, "/no/such/file": 127, "/etc/passwd": 126, "/etc": 126} {
		t.wantExit("running "+command, box.exec(&plugin.ExecRequest{Argv: []string{command, "x"}}), code)
	}
}

func checkKilled(t *T) {
	box := t.shared()
	for signal, number := range map[string]int{"KILL": 9, "TERM": 15, "SEGV": 11, "ABRT": 6} {
		request := shell("kill -" + signal + " $$; sleep 60")
		request.Timeout = stuck
		got := box.exec(request)
		t.wantExit("SIG"+signal, got, 128+number, plugin.ExitSignaled, plugin.ExitExited)
		if got.err == nil && got.status.Reason == plugin.ExitSignaled && got.status.Signal != signal {
			t.Errorf("SIG%s is reported as signal %q", signal, got.status.Signal)
		}
		if got.status.SandboxTerminated {
			t.Errorf("SIG%s to the command ended the sandbox", signal)
		}
		if got.took > promptly {
			t.Errorf("SIG%s took %v", signal, got.took)
		}
	}
}

func checkArgv(t *T) {
	arguments := []string{
		"", " ", "a b", "'", `"`, `\`, `\n`, "$HOME", "$(id)", "`id`", ";", "&&", "|", ">", "*", "?", "~", "#", "!", "-n", "--", "-", "a\nb", "\n", "\t",
		"é ü 漢 🙂", "%s", "{a,b}", "(x)", "=", "A=B", strings.Repeat("x", 5000),
	}
	got := t.shared().exec(shell(`for a; do printf '%s\0' "$a"; done`, arguments...))
	t.wantExit("the command", got, 0)
	if got.err == nil {
		t.wantText("the arguments", got.stdout, strings.Join(arguments, "\x00")+"\x00")
	}
}

func checkLongArgument(t *T) {
	box := t.shared()
	got := box.exec(shell(`printf %s "${#1}"`, strings.Repeat("x", 100<<10)))
	if got.err != nil {
		t.wantKind("an argument of 100 KiB", got.err, plugin.KindInvalid, plugin.KindTooLarge, plugin.KindRefused)
	} else {
		t.wantExit("an argument of 100 KiB", got, 0)
		t.wantText("its length", got.stdout, "102400")
	}
	// Linux takes at most 128 KiB for one.
	got = box.exec(shell(`printf %s "${#1}"`, strings.Repeat("x", 2<<20)))
	switch {
	case got.err != nil:
		t.wantKind("an argument of 2 MiB", got.err, plugin.KindInvalid, plugin.KindTooLarge, plugin.KindRefused)
	case got.status.Code == 0 && got.stdout != "2097152":
		t.Errorf("an argument of 2 MiB arrived as %s, with exit 0", short(got.stdout))
	}
	t.wantExit("a command afterwards", box.exec(&plugin.ExecRequest{Argv: []string{"true"}}), 0)
}

// awkwardValues are values of variables that break quoting.
var awkwardValues = map[string]string{
	"CONF_PLAIN": "plain", "CONF_SPACE": "a  b ", "CONF_QUOTES": `'"` + "`", "CONF_NEWLINE": "one\ntwo\n", "CONF_SHELL": "; echo injected; $(echo injected) $HOME",
	"CONF_EMPTY": "", "CONF_EQUALS": "a=b=c", "CONF_BACKSLASH": `a\nb\\`, "CONF_UNICODE": "é漢🙂", "CONF_LONG": strings.Repeat("v", 8000),
}

// printValues prints the variables of awkwardValues, in order, each after its name.
func printValues() string {
	var script strings.Builder
	for _, name := range slices.Sorted(maps.Keys(awkwardValues)) {
		fmt.Fprintf(&script, "printf '%%s\\0' \"%s=${%s-unset}\"\n", name, name)
	}
	return script.String()
}

func wantedValues() string {
	var want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(awkwardValues)) {
		fmt.Fprintf(&want, "%s=%s\x00", name, awkwardValues[name])
	}
	return want.String()
}

func checkExecEnv(t *T) {
	box := t.shared()
	request := shell(printValues())
	request.Env = awkwardValues
	got := box.exec(request)
	t.wantExit("the command", got, 0)
	t.wantText("the variables", got.stdout, wantedValues())
	got = box.exec(shell(`printf %s "${CONF_PLAIN-unset}"`))
	t.wantText("a variable of an earlier command", got.stdout, "unset")
}

func checkExecPath(t *T) {
	box := t.shared()
	box.must(`printf '#!/bin/sh\nprintf mine' >conformance-tool && chmod +x conformance-tool`)
	request := shell(`conformance-tool && printf " %s" "$HOME"`)
	request.Env = map[string]string{"PATH": box.dir + ":/usr/bin:/bin", "HOME": "/somewhere/else"}
	got := box.exec(request)
	t.wantExit("a command with a PATH of its own", got, 0)
	t.wantText("its output", got.stdout, "mine /somewhere/else")
}

func checkExecWorkdir(t *T) {
	box := t.shared()
	box.must("mkdir -p 'a dir'")
	got := box.exec(&plugin.ExecRequest{Argv: []string{"pwd"}, Workdir: box.path("a dir")})
	t.wantExit("pwd", got, 0)
	t.wantText("the directory", got.stdout, box.path("a dir")+"\n")
	got = box.exec(&plugin.ExecRequest{Argv: []string{"pwd"}, Workdir: box.path("missing")})
	switch {
	case got.err != nil:
		t.wantKind("a working directory that is missing", got.err, plugin.KindPath, plugin.KindInvalid)
	case got.status.Code == 0:
		t.Errorf("with a working directory that is missing the command ran in %s", short(got.stdout))
	}
}

func checkFreshProcess(t *T) {
	box := t.shared()
	box.must("export CONF_LEFT=1; cd /; echo kept >\"$0/file\"")
	got := box.exec(shell(`printf '%s %s' "${CONF_LEFT-unset}" "$(cat "$1/file")"`, box.dir))
	t.wantText("what is left of the command before", got.stdout, "unset kept")
	first := box.exec(&plugin.ExecRequest{Argv: []string{"pwd"}})
	second := box.exec(&plugin.ExecRequest{Argv: []string{"pwd"}})
	t.wantText("the second command's directory", second.stdout, first.stdout)
}

func checkUmask(t *T) {
	got := t.shared().must("rm -rf f d; touch f; mkdir d; stat -c %a f d")
	t.wantText("the modes of a new file and directory", got, "644\n755\n")
}

func checkNoTraces(t *T) {
	box := t.fresh()
	const look = `pwd; ls -a . /tmp "${HOME:-/}" /`
	before := box.exec(shell(look))
	for range 3 {
		box.exec(shell("printf word; printf word >&2"))
	}
	after := box.exec(shell(look))
	t.wantExit("ls", after, 0)
	t.wantText("the list of files afterwards", after.stdout, before.stdout)
}

func checkUser(t *T) {
	box := t.shared()
	got := box.exec(&plugin.ExecRequest{Argv: []string{"id", "-u"}, User: "65534"})
	t.wantExit("id -u as 65534", got, 0)
	t.wantText("the user id", got.stdout, "65534\n")
	got = box.exec(&plugin.ExecRequest{Argv: []string{"sh", "-c", "id -u; id -g"}, User: "1234:2345"})
	t.wantExit("id as 1234:2345", got, 0)
	t.wantText("the ids", got.stdout, "1234\n2345\n")
	got = box.exec(&plugin.ExecRequest{Argv: []string{"true"}, User: "no-such-user-here"})
	if got.err == nil && got.status.Code == 0 {
		t.Errorf("a user that does not exist is ignored")
	}
}
