package posix

import (
	"bytes"
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Stat implements plugin.FileSystem. Times are in whole seconds.
func (f *Files) Stat(ctx context.Context, ref plugin.Ref, name string, follow bool) (plugin.FileInfo, error) {
	mode := ""
	if follow {
		mode = "follow"
	}
	var answer bytes.Buffer
	err := f.run(ctx, ref, &call{verb: "look at", recipe: "stat", path: name, args: []string{mode}, stdout: &answer})
	if err != nil {
		return plugin.FileInfo{}, err
	}
	fields, target, _ := strings.Cut(answer.String(), "\n")
	info, ok := parseStat(fields)
	if !ok {
		return plugin.FileInfo{}, plugin.Errorf(plugin.KindInternal, "cannot look at %s: the sandbox's stat answers %q", quote(name), fields)
	}
	info.Name = path.Base(name)
	info.LinkTarget = strings.TrimSuffix(target, "\n")
	return info, nil
}

// parseStat reads "RAWMODE SIZE MTIME", the first in hexadecimal: `stat -c '%f %s %Y'`.
func parseStat(text string) (plugin.FileInfo, bool) {
	fields := strings.Split(text, " ")
	if len(fields) != 3 {
		return plugin.FileInfo{}, false
	}
	mode, modeErr := strconv.ParseUint(fields[0], 16, 32)
	size, sizeErr := strconv.ParseInt(fields[1], 10, 64)
	seconds, timeErr := strconv.ParseInt(fields[2], 10, 64)
	return plugin.FileInfo{
		Kind: kindOfMode(mode), Size: size, Mode: uint32(mode & 0o7777), ModTime: time.Unix(seconds, 0).UTC(),
	}, modeErr == nil && sizeErr == nil && timeErr == nil
}

// kindOfMode reads the file type in a mode as Linux numbers it.
func kindOfMode(mode uint64) plugin.FileKind {
	switch mode & 0o170000 {
	case 0o100000:
		return plugin.FileRegular
	case 0o040000:
		return plugin.FileDirectory
	case 0o120000:
		return plugin.FileSymlink
	}
	return plugin.FileOther
}
