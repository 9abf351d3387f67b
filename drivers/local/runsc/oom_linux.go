package runsc

import "os"

// dieFirst has the kernel, when this machine's memory is used up, end sandboxes before
// anything of the user's: code that nobody trusts is what most likely used it up. What
// runsc starts, the sandbox among it, inherits it.
//
// Everybody may do this to themselves. Where not even that is allowed the sandbox is
// chosen by its size alone, as everything else is, which is no reason not to start.
func dieFirst() {
	const first = "1000"
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(first), 0)
}
