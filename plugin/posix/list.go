package posix

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// maxListing bounds the memory that one directory can take, in bytes of its listing:
// about a million entries.
const maxListing = 64 << 20

// ReadDir implements plugin.FileSystem. A directory is listed whole or not at all.
func (f *Files) ReadDir(ctx context.Context, ref plugin.Ref, path string) ([]plugin.FileInfo, error) {
	var listing bytes.Buffer
	limited := &limitWriter{w: &listing, path: path, limit: maxListing}
	err := f.run(ctx, ref, &call{verb: "list", recipe: "list", path: path, stdout: limited})
	if err != nil {
		return nil, err
	}
	entries, err := parseListing(listing.String())
	if err != nil {
		return nil, plugin.Errorf(plugin.KindInternal, "cannot list %s: %w", quote(path), err)
	}
	return entries, nil
}

var errListing = errors.New("the listing from the sandbox makes no sense")

// parseListing reads what the list recipe says: the name of its form in a first line.
func parseListing(listing string) ([]plugin.FileInfo, error) {
	form, records, _ := strings.Cut(listing, "\n")
	switch form {
	case "find":
		return parseFind(records)
	case "stat":
		return parseStats(records)
	}
	return nil, errListing
}

// parseFind reads pairs of "TYPE SIZE MODE MTIME NAME" NUL "LINKTARGET" NUL.
func parseFind(records string) ([]plugin.FileInfo, error) {
	entries := []plugin.FileInfo{}
	for records != "" {
		entry, rest, ok := strings.Cut(records, "\x00")
		target, rest, whole := strings.Cut(rest, "\x00")
		fields := strings.SplitN(entry, " ", 5)
		if !ok || !whole || len(fields) != 5 {
			return nil, errListing
		}
		records = rest
		size, sizeErr := strconv.ParseInt(fields[1], 10, 64)
		mode, modeErr := strconv.ParseUint(fields[2], 8, 32)
		modified, _, _ := strings.Cut(fields[3], ".")
		seconds, timeErr := strconv.ParseInt(modified, 10, 64)
		if sizeErr != nil || modeErr != nil || timeErr != nil {
			return nil, errListing
		}
		entries = append(entries, plugin.FileInfo{
			Name: fields[4], Kind: kindOfLetter(fields[0]), Size: size, Mode: uint32(mode),
			ModTime: time.Unix(seconds, 0).UTC(), LinkTarget: target,
		})
	}
	return entries, nil
}

// kindOfLetter reads find's %y.
func kindOfLetter(letter string) plugin.FileKind {
	switch letter {
	case "f":
		return plugin.FileRegular
	case "d":
		return plugin.FileDirectory
	case "l":
		return plugin.FileSymlink
	}
	return plugin.FileOther
}

// parseStats reads the targets of links, as "./NAME" NUL "TARGET\n" NUL, an empty
// name that ends them, and then "RAWMODE SIZE MTIME ./NAME/\n" for every entry.
func parseStats(records string) ([]plugin.FileInfo, error) {
	targets := map[string]string{}
	for {
		name, rest, ok := strings.Cut(records, "\x00")
		if !ok {
			return nil, errListing
		}
		records = rest
		if name == "" {
			break
		}
		target, rest, ok := strings.Cut(records, "\n\x00")
		if !ok {
			return nil, errListing
		}
		targets[strings.TrimPrefix(name, "./")], records = target, rest
	}
	entries := []plugin.FileInfo{}
	for records != "" {
		numbers, rest, ok := strings.Cut(records, " ./")
		name, rest, whole := strings.Cut(rest, "/\n")
		info, valid := parseStat(numbers)
		if !ok || !whole || !valid {
			return nil, errListing
		}
		info.Name, info.LinkTarget, records = name, targets[name], rest
		entries = append(entries, info)
	}
	return entries, nil
}
