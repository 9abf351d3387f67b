//go:build !linux && !windows

package host

import "golang.org/x/sys/unix"

// keepInherited keeps what this process has inherited from its caller, a shell's lock or
// the end of a pipe, from the processes that it starts.
func keepInherited() {
	// Nothing says which descriptors are open; shells hand on small numbers.
	const afterStdio, most = 3, 1024
	for fd := afterStdio; fd < most; fd++ {
		unix.CloseOnExec(fd)
	}
}
