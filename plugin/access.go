package plugin

import "time"

// Access stands for the attempts of a sandbox to reach something that were alike and
// went alike.
type Access struct {
	Verdict AccessVerdict
	// Protocol is "tcp", "udp", "dns" or what else was tried.
	Protocol string
	// Host is the name that was looked up, or whose answer gave the address, where known.
	Host    string
	Address string
	Port    uint16
	// Reason says to people why it was refused or failed.
	Reason      string
	Count       uint64
	First, Last time.Time
}

// AccessVerdict is what became of an Access.
type AccessVerdict string

// The verdicts on an Access.
const (
	AccessAllowed AccessVerdict = "allowed"
	// AccessRefused is against the sandbox's policy.
	AccessRefused AccessVerdict = "refused"
	// AccessFailed was allowed and did not work.
	AccessFailed AccessVerdict = "failed"
)
