package posix

import (
	"fmt"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Linux's limits, in bytes: PATH_MAX counts the final NUL, NAME_MAX does not.
const (
	maxPath = 4095
	maxName = 255
)

// checkPath refuses what no kernel would take, before anything is run.
func checkPath(verb, path string) error {
	invalid := func(why string) error {
		return plugin.PathErrorf(path, plugin.PathInvalid, "cannot %s %s: %s", verb, quote(path), why)
	}
	switch {
	case path == "":
		return invalid("a path must not be empty")
	case strings.ContainsRune(path, 0):
		return invalid("a path cannot contain a NUL byte")
	case len(path) > maxPath:
		return invalid(fmt.Sprintf("a path has at most %d bytes", maxPath))
	}
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > maxName {
			return invalid(fmt.Sprintf("a name in a path has at most %d bytes", maxName))
		}
	}
	return nil
}

// escape writes a path for the shell's `printf %b`, in plain ASCII. A relative path
// begins with "./", so that no tool takes it for an option.
func escape(path string) string {
	if !strings.HasPrefix(path, "/") {
		path = "./" + path
	}
	var escaped strings.Builder
	for i := range len(path) {
		if c := path[i]; isPlain(c) {
			escaped.WriteByte(c)
		} else {
			fmt.Fprintf(&escaped, `\0%03o`, c)
		}
	}
	return escaped.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("/._-", c) >= 0
}

// quote keeps control characters and endless paths out of messages.
func quote(path string) string {
	const most = 200
	if len(path) > most {
		path = path[:most] + "..."
	}
	return fmt.Sprintf("%q", path)
}
