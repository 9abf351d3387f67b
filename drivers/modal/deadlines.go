package modal

import "time"

// The SDK waits for ever on most calls; these are our own limits.
const (
	// lookupLimit is for calls that Modal answers at once.
	lookupLimit = 20 * time.Second
	// buildLimit is for the first use of an image, which Modal pulls and
	// converts in silence.
	buildLimit = 15 * time.Minute
	// createLimit is for a sandbox to be scheduled, GPU sandboxes included.
	createLimit = 10 * time.Minute
	// throttleLimit caps how long the SDK follows Modal's instructions to wait
	// and retry, which it does without limit by default.
	throttleLimit = 20 * time.Second
	// startLimit is for a command to start. An exec on a sick sandbox was seen
	// to hang before it even started.
	startLimit = 15 * time.Second
	// livenessLimit is for the trivial command that tells whether a sandbox is
	// alive; it takes 0.2 s on the service.
	livenessLimit = 10 * time.Second
	// fileLimit is for file calls that move no content to speak of.
	fileLimit = 60 * time.Second
	// uploadRate is the slowest upload, in bytes a second, that is not given up.
	uploadRate = 64 << 10
	// healthLimit is for the health check's one call.
	healthLimit = 5 * time.Second
	// cleanupLimit is how long a cancelled create looks for the sandbox it may
	// have made. The host allows four seconds before it gives the driver up.
	cleanupLimit = 3500 * time.Millisecond
	// detachedLimit is for a call that the SDK makes on a context of its own.
	detachedLimit = 3 * time.Second
	// killLimit is for killing a command's processes. On a cancel the same four
	// seconds have to do.
	killLimit = 3 * time.Second
	// terminateLimit is for ending a sandbox without waiting for it to be gone.
	terminateLimit = 20 * time.Second
)
