package transfer

// Stats count what a copy moved.
type Stats struct {
	Files int64
	Dirs  int64
	// Links counts symbolic links, and hard links where an archive has them.
	Links int64
	// Bytes is the sum of the files' sizes, not of the stream.
	Bytes int64
	// Skipped lists what was left out and why, one sentence each, ready to be
	// shown as warnings. A copy with entries here is not a complete one.
	Skipped []string
}

// Progress is told the number of content bytes moved so far. It is called from
// the goroutine that copies, about every 256 KiB, and must return at once.
type Progress func(bytes int64)
