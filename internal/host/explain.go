package host

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// explainStart finds out from the process itself why there was no handshake;
// go-plugin has one text for most causes.
func explainStart(found Found, sub *subprocess, err error) error {
	if sub.process.ID() == "" {
		return explainExec(found, err)
	}
	return explainHandshake(found, sub, err)
}

func explainHandshake(found Found, sub *subprocess, err error) error {
	first, said := sub.process.first.line()
	fields := strings.Split(strings.TrimSpace(first), "|")
	switch {
	case !said:
		return explainExit(found, sub)
	case len(fields) < 4 || !isNumber(fields[0]) || !isNumber(fields[1]):
		return errNoise(found, first)
	}
	version, _ := strconv.Atoi(fields[1])
	if !slices.Contains(protocols(), version) {
		return errProtocol(found.Name, found.Path, version)
	}
	return errNotADriver(found, "its handshake cannot be used: "+printable(err.Error()), err)
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// explainExec is for a process that the system did not start.
func explainExec(found Found, err error) error {
	failed := &StartError{Driver: found.Name, Path: found.Path, Cause: err}
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		failed.Reason = ReasonWrongPlatform
		failed.Message = fmt.Sprintf("driver %s at %s is no program for this system and processor", found.Name, found.Path)
		failed.Hint = fmt.Sprintf("install the driver's build for %s/%s", runtime.GOOS, runtime.GOARCH)
	case errors.Is(err, fs.ErrNotExist):
		failed.Reason = ReasonWrongPlatform
		failed.Message = fmt.Sprintf("driver %s at %s needs an interpreter or C library that is not here", found.Name, found.Path)
		failed.Hint = "install the driver's build for this system; a static one (CGO_ENABLED=0) runs on any"
	case errors.Is(err, fs.ErrPermission):
		failed.Reason = ReasonNotExecutable
		failed.Message = fmt.Sprintf("driver %s at %s may not be executed", found.Name, found.Path)
		failed.Hint = "check its mode, and whether its file system is mounted noexec"
	default:
		return errSystem(found, err)
	}
	return failed
}

// explainExit is for a process that ended, or closed its stdout, without a word.
func explainExit(found Found, sub *subprocess) error {
	headline, lines := sub.process.tail.report(sub.hide)
	failed := &StartError{Driver: found.Name, Path: found.Path, Reason: ReasonExited, LastLines: lines}
	status := sub.process.exitStatus()
	switch {
	case headline != "":
		failed.Reason = ReasonPanic
		failed.Message = fmt.Sprintf("driver %s at %s failed as it started: %s", found.Name, found.Path, headline)
		failed.Hint = "report this to the driver's author"
	case slices.ContainsFunc(lines, isForeignPlugin):
		return errNotADriver(found, "it is a plugin of another program", nil)
	case status == "exit status 0" && len(lines) == 0:
		return errNotADriver(found, "it ended without a word", nil)
	default:
		failed.Message = fmt.Sprintf("driver %s at %s ended before it was ready (%s)", found.Name, found.Path, status)
		if status == killedStatus {
			failed.Message = fmt.Sprintf("driver %s at %s closed its stdout, or was killed, before it was ready", found.Name, found.Path)
		}
		if len(lines) > 0 {
			failed.Message += ": " + lines[len(lines)-1]
		}
		failed.Hint = "run it by hand with --describe to see what it needs"
	}
	return failed
}

// killedStatus is that of a process that somebody killed, which go-plugin does as
// soon as stdout is closed.
const killedStatus = "signal: killed"

// isForeignPlugin knows what go-plugin prints when the cookie is another program's.
func isForeignPlugin(line string) bool {
	return strings.HasPrefix(line, "This binary is a plugin.")
}

func errNoise(found Found, line string) error {
	const quoted = 80
	noise := printable(line)
	if runes := []rune(noise); len(runes) > quoted {
		noise = string(runes[:quoted]) + "..."
	}
	return &StartError{
		Driver: found.Name, Path: found.Path, Reason: ReasonNoise,
		Message: fmt.Sprintf("driver %s at %s wrote %q to stdout before it was ready", found.Name, found.Path, noise),
		Hint:    "if it is a driver, its author has to keep it, and the libraries in it, from printing as it starts",
	}
}

func errProtocol(name, path string, version int) error {
	ours := protocols()
	upgrade := "driver " + name
	if version > ours[len(ours)-1] {
		upgrade = "sandboxctl"
	}
	return &StartError{
		Driver: name, Path: path, Reason: ReasonProtocol,
		Message: fmt.Sprintf("driver %s at %s speaks protocol %d, this sandboxctl speaks %s", name, path, version, joinNumbers(ours)),
		Hint:    "upgrade " + upgrade,
	}
}

func joinNumbers(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, number := range numbers {
		texts[i] = strconv.Itoa(number)
	}
	return strings.Join(texts, ", ")
}

// explainSlow is for a driver that did not start in time.
func (h *Host) explainSlow(found Found, sub *subprocess) error {
	failed := errSlow(found, "start", h.startLimit, nil)
	_, failed.LastLines = sub.process.tail.report(sub.hide)
	return failed
}

func errSlow(found Found, what string, limit time.Duration, cause error) *StartError {
	return &StartError{
		Driver: found.Name, Path: found.Path, Reason: ReasonSlow, Cause: cause,
		Message: fmt.Sprintf("driver %s at %s did not %s within %s", found.Name, found.Path, what, limit),
		Hint:    "try again; if it stays so, --debug shows how far it gets",
	}
}

func errNotADriver(found Found, why string, cause error) error {
	return &StartError{
		Driver: found.Name, Path: found.Path, Reason: ReasonNotADriver, Cause: cause,
		Message: fmt.Sprintf("%s is not a sandboxctl driver: %s", found.Path, why),
		Hint:    "correct the path, or install the driver again",
	}
}

func errWrongName(found Found, says string) error {
	return &StartError{
		Driver: found.Name, Path: found.Path, Reason: ReasonWrongName,
		Message: fmt.Sprintf("%s was to be driver %s, but says that it is driver %q", found.Path, found.Name, printable(says)),
		Hint:    "use the name that it gives itself",
	}
}

func errNoSocketDir(found Found, err error) error {
	return &StartError{
		Driver: found.Name, Path: found.Path, Reason: ReasonEnvironment, Cause: err,
		Message: fmt.Sprintf("driver %s cannot be started, because there is no private directory for its socket: %s",
			found.Name, strings.ReplaceAll(err.Error(), "\n", "; ")),
		Hint: "set TMPDIR to a short, writable path",
	}
}

func errSystem(found Found, err error) error {
	return &StartError{
		Driver: found.Name, Path: found.Path, Reason: ReasonEnvironment, Cause: err,
		Message: fmt.Sprintf("driver %s at %s could not be started: %s", found.Name, found.Path, printable(pathCause(err).Error())),
		Hint:    "check the limits of this user and the free space for temporary files",
	}
}
