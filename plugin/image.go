package plugin

import "time"

// Image is an image that an ImageStore keeps.
type Image struct {
	// References are the names that it was asked for by.
	References []string
	Digest     string
	// SizeBytes is what it takes on this machine.
	SizeBytes uint64
	PulledAt  time.Time
	// LastUsedAt is when a sandbox was last made from it; zero for never.
	LastUsedAt time.Time
	// Sandboxes counts the live sandboxes that were made from it.
	Sandboxes uint32
}
