package ledger

import "os"

// Liveness says what is known about a process.
type Liveness int

const (
	// Unknown: the process belongs to another host or pid namespace, or the platform cannot say. Treat it as alive.
	Unknown Liveness = iota
	// Alive: the very process still runs.
	Alive
	// Dead: it has ended, even if its pid is in use again.
	Dead
)

// Process names one process of one boot of one host. A pid alone is not enough: pids are used again.
type Process struct {
	PID int `json:"pid"`
	// Start is the kernel's start time of the process, in the platform's own unit; only equality means anything.
	Start string `json:"start,omitempty"`
	// Boot names the boot of the kernel, Host the machine or container, PIDNamespace the scope of the pid.
	Boot         string `json:"boot,omitempty"`
	Host         string `json:"host,omitempty"`
	PIDNamespace string `json:"pid_namespace,omitempty"`
}

// currentProcess describes the calling process as well as the platform can.
func currentProcess() Process {
	pid := os.Getpid()
	// What cannot be read stays empty, and Alive then answers Unknown.
	host, _ := os.Hostname()
	start, _ := processStart(pid)
	return Process{PID: pid, Start: start, Boot: bootID(), Host: host, PIDNamespace: pidNamespace()}
}

// Alive reports whether the process still runs. It answers Dead only when that is certain, since the answer decides
// whether somebody's sandbox is removed. A zombie is dead.
func (p Process) Alive() Liveness {
	if p.PID <= 0 || p.Start == "" || p.Boot == "" {
		return Unknown
	}
	switch boot := bootID(); {
	case boot == "":
		return Unknown
	case boot != p.Boot:
		// This host was restarted, or the state directory is shared with another host.
		if host, err := os.Hostname(); err == nil && host == p.Host {
			return Dead
		}
		return Unknown
	}
	if p.PIDNamespace != pidNamespace() {
		return Unknown
	}
	switch start, err := processStart(p.PID); {
	case err != nil:
		return Unknown
	case start == p.Start:
		return Alive
	default:
		return Dead
	}
}
