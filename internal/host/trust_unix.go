//go:build unix

package host

import (
	"fmt"
	"os"
	"syscall"
)

// writableByOthers says how somebody other than this user and root could change a
// file or what is in a directory, or returns "".
func writableByOthers(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "cannot be looked at"
	}
	owner := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case !ownedByUs(owner):
		return fmt.Sprintf("belongs to another user (uid %d)", owner.Uid)
	case mode&0o002 != 0:
		return "can be written to by everybody"
	// By convention a user's private group has the user's number. Distributions with
	// such groups also have umask 002, so everything built there is group-writable.
	case mode&0o020 != 0 && owner.Gid != owner.Uid:
		return fmt.Sprintf("can be written to by a group (gid %d)", owner.Gid)
	}
	return ""
}

func ownedByUs(owner *syscall.Stat_t) bool {
	return owner.Uid == 0 || int(owner.Uid) == os.Geteuid()
}
