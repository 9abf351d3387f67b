//go:build !unix

package host

import "os"

// ownDirectory makes a directory unless it exists. Drivers listen on TCP with
// mutual TLS on Windows, so nothing secret is in it.
func ownDirectory(dir string) error { return os.MkdirAll(dir, 0o700) }

// lockDirectory never succeeds: directories cannot be locked on Windows, and what a
// killed host leaves there is an empty directory.
func lockDirectory(string) (unlock func(), ok bool) { return nil, false }
