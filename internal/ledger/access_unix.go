//go:build !windows

package ledger

import (
	"fmt"
	"os"
	"syscall"
)

// checkPrivate refuses a directory in which another user could plant or swap records: the ledger decides what gc destroys.
func checkPrivate(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("others can write to it (mode %04o, run 'chmod go-w' on it)", mode)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to user id %d and you are %d", st.Uid, os.Geteuid())
	}
	return nil
}
