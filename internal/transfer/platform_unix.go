//go:build unix

package transfer

import (
	"errors"
	"syscall"
)

// isNotDir reports a path that runs through a file. For a copy that is the same
// as a path that does not exist.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// isLocalAbs has nothing to add where a leading slash is all there is.
func isLocalAbs(string) bool { return false }
