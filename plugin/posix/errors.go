package posix

import (
	"strconv"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// What a recipe found out, as its exit status; recipes/prelude.sh has the same
// numbers. They keep clear of what shells and tools return by themselves.
const (
	exitMissing      = 81
	exitIsDirectory  = 82
	exitNotDirectory = 83
	exitNotRegular   = 84
	exitPermission   = 85
	exitNoTool       = 86
	exitIncomplete   = 87
	exitTooLarge     = 88

	// What a shell, or whatever starts it, says when there is no sh.
	exitNotExecutable = 126
	exitNotFound      = 127
)

var reasonOfExit = map[int]struct {
	reason plugin.PathReason
	text   string
}{
	exitMissing:      {plugin.PathMissing, "it does not exist"},
	exitIsDirectory:  {plugin.PathIsDirectory, "it is a directory"},
	exitNotDirectory: {plugin.PathNotDirectory, "it, or a parent of it, is not a directory"},
	exitNotRegular:   {plugin.PathNotRegular, "it is not a regular file"},
	exitPermission:   {plugin.PathPermission, "permission denied"},
}

// reasonOfText holds what the C library says in the C locale. It settles what no test
// of the shell can tell beforehand.
var reasonOfText = []struct {
	text   string
	reason plugin.PathReason
}{
	{"No space left on device", plugin.PathNoSpace},
	{"uota exceeded", plugin.PathNoSpace},
	{"Read-only file system", plugin.PathReadOnly},
	{"Permission denied", plugin.PathPermission},
	{"Operation not permitted", plugin.PathPermission},
	{"Is a directory", plugin.PathIsDirectory},
	{"Not a directory", plugin.PathNotDirectory},
	{"No such file or directory", plugin.PathMissing},
	{"File name too long", plugin.PathInvalid},
}

// explain turns a recipe's exit status and what was said on stderr into an error.
func (c *call) explain(code int, stderr string) error {
	said := strings.TrimSpace(stderr)
	if known, ok := reasonOfExit[code]; ok {
		return plugin.PathErrorf(c.path, known.reason, "cannot %s %s in the sandbox: %s", c.verb, quote(c.path), known.text)
	}
	switch code {
	case 0:
		return nil
	case exitNotExecutable, exitNotFound:
		return plugin.Refusedf("", "cannot %s %s: the sandbox has no POSIX shell, which files need here", c.verb, quote(c.path)).
			WithHint("Use an image that has sh and coreutils or busybox.")
	case exitNoTool:
		return plugin.Refusedf("", "cannot %s %s: the sandbox has no %s, which is needed for that", c.verb, quote(c.path), said).
			WithHint("Use an image that has %s.", said)
	case exitTooLarge:
		size, limit := parseSizes(said)
		return plugin.TooLarge(c.path, size, limit)
	case exitIncomplete:
		return plugin.Errorf(plugin.KindUnavailable, "cannot %s %s: the content did not arrive whole in the sandbox; nothing was changed", c.verb, quote(c.path))
	}
	reason := plugin.PathOther
	for _, known := range reasonOfText {
		if strings.Contains(said, known.text) {
			reason = known.reason
			break
		}
	}
	if said == "" {
		said = "exit status " + strconv.Itoa(code)
	}
	return plugin.PathErrorf(c.path, reason, "cannot %s %s in the sandbox: %s", c.verb, quote(c.path), said)
}

// parseSizes reads "SIZE LIMIT", which the read recipe says.
func parseSizes(said string) (size, limit int64) {
	first, second, _ := strings.Cut(said, " ")
	size, _ = strconv.ParseInt(first, 10, 64)
	limit, _ = strconv.ParseInt(second, 10, 64)
	return size, limit
}
