package transfer

import "fmt"

// LimitName names a field of Limits in an Error.
type LimitName string

// The limits an archive can exceed.
const (
	LimitEntries LimitName = "entries"
	LimitBytes   LimitName = "bytes"
	LimitNames   LimitName = "name bytes"
	LimitPath    LimitName = "path length"
	LimitDepth   LimitName = "depth"
)

// Limits bound what an archive from a sandbox may make the host do. A zero
// field takes its value from DefaultLimits.
type Limits struct {
	// Entries is the number of entries, of every kind, and of directories that are
	// only mentioned in longer names.
	Entries int64
	// Bytes is the sum of the files' sizes.
	Bytes int64
	// NameBytes is the sum of the lengths of all names and link targets. It
	// bounds the memory of an extraction, which remembers the names it has seen.
	NameBytes int64
	// Path is the length of one name or link target in bytes.
	Path int64
	// Depth is the number of elements of one name.
	Depth int64
}

// DefaultLimits are far above a large node_modules or a data set and far below
// what fills a host: 500,000 entries, 64 GiB, 64 MiB of names, names of 4096
// bytes (PATH_MAX on Linux) and 256 elements.
func DefaultLimits() Limits {
	return Limits{Entries: 500_000, Bytes: 64 << 30, NameBytes: 64 << 20, Path: 4096, Depth: 256}
}

func (l Limits) withDefaults() Limits {
	def := DefaultLimits()
	for _, f := range []struct{ value, def *int64 }{
		{&l.Entries, &def.Entries},
		{&l.Bytes, &def.Bytes},
		{&l.NameBytes, &def.NameBytes},
		{&l.Path, &def.Path},
		{&l.Depth, &def.Depth},
	} {
		if *f.value == 0 {
			*f.value = *f.def
		}
	}
	return l
}

func limitError(limit LimitName, limitMax int64, entry string) error {
	if len(entry) > 256 {
		entry = entry[:256] + "..."
	}
	return &Error{Class: ClassLimit, Path: entry, Limit: limit, Max: limitMax,
		Reason: fmt.Sprintf("the archive exceeds the limit on %s (%d)", limit, limitMax)}
}
