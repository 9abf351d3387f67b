package opensandbox

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// The route for exact bytes is execd's terminal session in pipe mode: a process with raw pipes behind a websocket.
// Its defects are dealt with inside the sandbox, by a small program around the command:
//
//   - Output in flight when the session's process ends may be lost. So the process does not end: it marks the end of
//     both channels and waits for the session to be deleted.
//   - stdin cannot be ended, and an unread stdin stops the daemon from answering websocket pings. So stdin comes in
//     frames that say how long they are, each acknowledged once the command's pipe has taken it.
//   - There are no fields for environment, directory and deadline, and argv of the session would show the values. So
//     the program itself comes over stdin.
//   - A lost client leaves the command running. So the program keeps the deadline.
//
// Marks are put into the output as NUL, a random token, a colon, a word and NUL, each in one write of less than
// PIPE_BUF bytes, which a pipe keeps whole.
//
// The program's variables begin with sbx_: a shell variable that came with the environment stays exported, so a
// common name would change what the command sees.

// workdirVar carries a sandbox's default directory in its environment, since the server has no field for it.
const workdirVar = "EXECD_SANDBOXCTL_WORKDIR"

// bootstrap reads the length of the program, in eight digits, and then the program. Only constant text is in it: it
// is an argument that everything in the sandbox can see. It does not use read, which in bash takes more than a line
// from a terminal.
const bootstrap = `sbx_n=$(dd bs=8 count=1 iflag=fullblock 2>/dev/null) && ` +
	`sbx_s=$(dd bs="$sbx_n" count=1 iflag=fullblock 2>/dev/null; echo .) && eval "${sbx_s%.}"`

// terminalBootstrap does so over a terminal, which must neither echo the program nor touch it, and says when it is
// ready for it.
const terminalBootstrap = `stty raw -echo && printf '\000@TOKEN@:r\000' && ` + bootstrap

// killGrace is the time between asking a command to end at its deadline and forcing it.
const killGrace = 2 * time.Second

// program is the shell text that runs one command.
type program struct {
	token   string
	request *plugin.ExecRequest
}

func (p program) text() (string, error) {
	// A shell drops NUL bytes without a word, which makes another command.
	if strings.ContainsRune(strings.Join(p.request.Argv, "")+p.request.Workdir, 0) {
		return "", plugin.Errorf(plugin.KindInvalid, "an argument or the working directory of the command holds a NUL byte")
	}
	exports, err := p.exports()
	if err != nil {
		return "", err
	}
	watchStart, watchStop := p.watchdog()
	fill := strings.NewReplacer(
		"@TOKEN@", p.token, "@DIRECTORY@", p.directory(), "@EXPORTS@", exports, "@ARGV@", quoteAll(p.request.Argv),
		"@WATCH@", watchStart, "@UNWATCH@", watchStop,
	)
	switch {
	case p.request.TTY:
		return fill.Replace(terminalPart + commonPart + terminalRun), nil
	case p.request.Stdin:
		return fill.Replace(pipePart + commonPart + stdinPump + pipeRun + "pump | { exec 6<&0; run; }\n"), nil
	}
	return fill.Replace(pipePart + commonPart + pipeRun + "exec 6</dev/null; run\n"), nil
}

// pipePart: 3 is what the client sends, 4 and 5 are the channels; the program itself must not write to them.
const pipePart = `exec 3<&0 4>&1 5>&2 </dev/null >/dev/null 2>&1
`

// terminalPart: there is one channel, and the terminal's keys must not end the program.
const terminalPart = `exec 4>&1 5>&1
stty sane
trap : INT QUIT TERM HUP TSTP
`

// commonPart: say marks a channel. alive and end are about a process group, or the process alone before it has made
// its group.
const commonPart = `say() { printf '\000%s:%s\000' '@TOKEN@' "$1"; }
alive() { kill -s 0 -- "-$1" 2>/dev/null || kill -s 0 "$1" 2>/dev/null; }
end() { kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2" 2>/dev/null; }
sbx_sh=$(command -v sh)
unset EXECD_ACCESS_TOKEN
@DIRECTORY@
`

// stdinPump: a frame is its length on a line and that many bytes; "e" ends the command's stdin. A reader that has
// gone away must not end the pump, or the frames would get out of step.
const stdinPump = `pump() {
  exec 0<&3; trap '' PIPE
  while IFS= read -r sbx_n; do
    case $sbx_n in
    e) exec >/dev/null ;;
    *) dd bs="$sbx_n" count=1 iflag=fullblock; say a >&5 ;;
    esac
  done
}
`

// pipeRun: the command leads a session of its own, so that it can be killed with all that it started and is not
// killed with this program. Its environment is set last, since a PATH without the usual tools may be in it. At the
// end this waits to be killed with the session; the sleep is for a client that died.
const pipeRun = `run() {
  sbx_setsid=$(command -v setsid)
  set -- @ARGV@
  (
    @EXPORTS@
    exec 3<&- 4<&- 5<&-
    exec $sbx_setsid "$sbx_sh" -c 'exec "$@"' sh "$@"
  ) <&6 >&4 2>&5 6<&- &
  sbx_p=$!
  exec 6<&-
  say "s $sbx_p" >&4
  @WATCH@
  wait "$sbx_p"; sbx_st=$?
  @UNWATCH@
  say "x $sbx_st" >&4; say "x $sbx_st" >&5
  sleep 60
  kill -s KILL 0
}
`

// terminalRun: the command shares this program's process group, which the terminal's keys signal.
const terminalRun = `sbx_p=$$
say "s $sbx_p" >&4
@WATCH@
(
  @EXPORTS@
  exec 4<&- 5<&-
  exec "$sbx_sh" -c 'exec "$@"' sh @ARGV@
)
sbx_st=$?
@UNWATCH@
stty raw -echo 2>/dev/null
say "x $sbx_st" >&4
sleep 60
kill -s KILL 0
`

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readOnlyNames cannot be assigned in bash, which sh is in some images.
var readOnlyNames = []string{"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"}

// checkEnvName refuses what a shell in the sandbox cannot set.
func checkEnvName(name string) error {
	if !envName.MatchString(name) || slices.Contains(readOnlyNames, name) {
		return plugin.Errorf(plugin.KindInvalid, "the environment variable name %q cannot be set for a command in an OpenSandbox sandbox", name).
			WithHint("use letters, digits and underscores, and none of %s", strings.Join(readOnlyNames, ", "))
	}
	return nil
}

// exports sets the environment of the command.
func (p program) exports() (string, error) {
	var b strings.Builder
	b.WriteString(":\n")
	for _, name := range slices.Sorted(maps.Keys(p.request.Env)) {
		if err := checkEnvName(name); err != nil {
			return "", err
		}
		if strings.ContainsRune(p.request.Env[name], 0) {
			return "", plugin.Errorf(plugin.KindInvalid, "the value of the environment variable %s holds a NUL byte", name)
		}
		b.WriteString("export " + name + "=" + quote(p.request.Env[name]) + "\n")
	}
	return b.String(), nil
}

// directory enters the command's directory. What is wrong with it is told by a mark, since there is no command yet
// whose failure it could be.
func (p program) directory() string {
	enter := "sbx_d=${" + workdirVar + ":-.}; unset " + workdirVar + "\n"
	if p.request.Workdir != "" {
		enter += `cd -- "$sbx_d" 2>/dev/null; sbx_d=` + quote(p.request.Workdir) + "\n"
	}
	return enter + `case $sbx_d in -*) sbx_d=./$sbx_d ;; esac
if ! cd -- "$sbx_d" 2>/dev/null; then
  sbx_w=m; if [ -d "$sbx_d" ]; then sbx_w=p; elif [ -e "$sbx_d" ]; then sbx_w=n; fi
  say "d $sbx_w" >&4; sleep 60; exit
fi`
}

// watchdog starts and stops what keeps the deadline: it ends the command's process group, unless it is told first
// that the command has ended. Once it has begun to kill it is not disturbed, so that stragglers are killed, too.
// sleep takes fractions nearly everywhere; where it does not, the deadline is rounded up.
func (p program) watchdog() (start, stop string) {
	if p.request.Timeout <= 0 {
		return "", ""
	}
	whole := int64((p.request.Timeout + time.Second - 1) / time.Second)
	start = fmt.Sprintf(`{
    trap exit TERM
    { sleep %.3f || sleep %d; } & wait $!
    trap '' TERM
    alive "$sbx_p" || exit
    say t >&5
    end TERM "$sbx_p"
    sbx_n=0
    while alive "$sbx_p" && [ "$sbx_n" -lt %d ]; do sleep 0.1 || sleep 1; sbx_n=$((sbx_n+1)); done
    end KILL "$sbx_p"
  } 2>/dev/null & sbx_w=$!`, p.request.Timeout.Seconds(), whole, int(killGrace/(100*time.Millisecond)))
	return start, `{ kill -s TERM "$sbx_w"; wait "$sbx_w"; } 2>/dev/null`
}

// quote makes one shell word of any bytes but NUL.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
