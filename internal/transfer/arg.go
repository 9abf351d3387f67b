package transfer

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
)

// Side says where an argument of cp points.
type Side int

const (
	// SideLocal is a path on this machine.
	SideLocal Side = iota
	// SideSandbox is a path in a sandbox.
	SideSandbox
	// SideStream is "-": a tar stream on stdin or stdout.
	SideStream
)

// Arg is one parsed argument of cp.
type Arg struct {
	Side Side
	// Sandbox is a name, an id or a prefix of an id, for SideSandbox only.
	Sandbox string
	// Path is what the user wrote, with a trailing "/" or "/." kept because it
	// carries meaning (see Plan). A relative sandbox path counts from the
	// sandbox's workdir. On Windows the separators of a local path are turned
	// into "/". Empty for SideStream.
	Path string
}

// String gives the argument back as it is written on a command line.
func (a Arg) String() string {
	switch a.Side {
	case SideSandbox:
		return a.Sandbox + ":" + a.Path
	case SideStream:
		return "-"
	default:
		return a.Path
	}
}

// Bare is Path without a trailing "/" or "/.": what a driver is asked for.
func (a Arg) Bare() string { return trimMarker(a.Path) }

// FollowsLink reports whether a symbolic link at the path itself is followed
// even without -L, because the path ends in "/" or "/." and so asks for the
// directory behind it.
func (a Arg) FollowsLink() bool { return assertsDir(a.Path) }

// maxSandboxPath is PATH_MAX on Linux. A longer path cannot exist in a guest,
// so it is not sent.
const maxSandboxPath = 4096

var sandboxName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ParseArg reads SANDBOX:PATH, a local path or "-". As with docker cp, a local
// path that has a colon in its first element is written with a directory in
// front, ./a:b or /x/a:b: a colon behind a separator is part of a local path.
// Nothing behind the colon means the sandbox's workdir, as it does for scp.
// On Windows C:\x and C:/x are local, so a sandbox with a one-letter name is
// addressed there by its id. Every error is of ClassUsage.
func ParseArg(s string) (Arg, error) {
	return parseArg(s, runtime.GOOS == "windows")
}

// ParsePair reads the two arguments of cp and refuses the pairs that no copy is
// defined for: cp moves data into, out of or between sandboxes.
func ParsePair(src, dst string) (Arg, Arg, error) {
	from, err := ParseArg(src)
	if err != nil {
		return Arg{}, Arg{}, err
	}
	to, err := ParseArg(dst)
	if err != nil {
		return Arg{}, Arg{}, err
	}
	if from.Side != SideSandbox && to.Side != SideSandbox {
		return Arg{}, Arg{}, &Error{Class: ClassUsage, Reason: fmt.Sprintf(
			"neither %q nor %q is in a sandbox; write one of them as SANDBOX:PATH", src, dst)}
	}
	return from, to, nil
}

func parseArg(s string, windows bool) (Arg, error) {
	if s == "" {
		return Arg{}, usage(s, "an argument is empty; give SANDBOX:PATH, a local path or -")
	}
	if s == "-" {
		return Arg{Side: SideStream}, nil
	}
	if strings.IndexByte(s, 0) >= 0 {
		return Arg{}, usage(s, "a path cannot contain a NUL byte")
	}
	if windows {
		s = strings.ReplaceAll(s, `\`, "/")
		if hasDrive(s) {
			return parseDrive(s)
		}
	}
	name, path, found := strings.Cut(s, ":")
	if !found || strings.Contains(name, "/") {
		return Arg{Side: SideLocal, Path: s}, nil
	}
	return parseSandboxArg(s, name, path)
}

func parseSandboxArg(s, name, path string) (Arg, error) {
	switch {
	case name == "":
		return Arg{}, usage(s, "there is no sandbox before the colon; write SANDBOX:PATH, or ./%s for a local file", s)
	case !sandboxName.MatchString(name):
		return Arg{}, usage(s, "%q is not the name or id of a sandbox (letters, digits, '.', '_' and '-'); write ./%s for a local file", name, s)
	case len(path) > maxSandboxPath:
		return Arg{}, usage(s[:64]+"...", "the path in the sandbox is longer than %d bytes", maxSandboxPath)
	}
	if path == "" {
		path = "."
	}
	return Arg{Side: SideSandbox, Sandbox: name, Path: path}, nil
}

func hasDrive(s string) bool {
	letter := s[0] | 0x20
	return len(s) >= 2 && s[1] == ':' && 'a' <= letter && letter <= 'z'
}

// parseDrive refuses C:x, which Windows resolves against a directory that it
// remembers per drive: nobody means that, and a user of SANDBOX:PATH may well
// have meant a sandbox.
func parseDrive(s string) (Arg, error) {
	if len(s) < 3 || s[2] != '/' {
		return Arg{}, usage(s, "a path on a drive must start at its root (C:/x); address a sandbox with a one-letter name by its id")
	}
	return Arg{Side: SideLocal, Path: s}, nil
}

func usage(arg, format string, args ...any) error {
	return &Error{Class: ClassUsage, Path: arg, Reason: fmt.Sprintf(format, args...)}
}
