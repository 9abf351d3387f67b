package transfer

import "path/filepath"

// isNotDir is not needed on Windows, where such a path is ErrNotExist already.
func isNotDir(error) bool { return false }

// isLocalAbs knows drive letters and UNC paths.
func isLocalAbs(path string) bool { return filepath.IsAbs(path) }
