package host

import "github.com/sandboxctl/sandboxctl/plugin"

// link is what keeps a Driver connected: a process that was started, or a
// connection to one that ran already.
type link interface {
	// crash describes the end of the process, or returns nil when it has not ended.
	crash(lost *plugin.ConnectionError) *CrashError
	// pid is the process that was started, or zero.
	pid() int
	// close ends the link; busy says that the driver may be in the middle of a call.
	close(busy bool)
}
