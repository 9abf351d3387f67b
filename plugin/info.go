package plugin

import "time"

// Info is who a driver is and what it can do.
type Info struct {
	// Name is as in the binary's name, sandboxctl-driver-<name>: a lower-case letter,
	// then up to 31 lower-case letters, digits or dashes.
	Name    string
	Version string
	// Description is one line for people.
	Description  string
	Capabilities Capabilities
	// Env lists the variables that the driver wants to have from the user's
	// environment. It gets them through Configure, and no others.
	Env []EnvVar
	// ConfigSchema is a JSON Schema of Config.Settings, or empty.
	ConfigSchema string
	// Options are the driver options of create. Others are refused.
	Options []Option
	// DefaultImage is what create takes when the user names no image.
	DefaultImage string
}

// EnvVar is an environment variable that a driver wants to have.
type EnvVar struct {
	Name string
	// Secret keeps the value out of all output.
	Secret      bool
	Description string
}

// Option is a driver option of create: --opt name=value.
type Option struct {
	Name, Description string
}

// Capabilities say what a driver can enforce. Whatever is not claimed is refused
// before anything is created; a false claim fails the conformance suite.
type Capabilities struct {
	Spec    SpecSupport
	Network NetworkSupport
	Lease   LeaseSupport
	Exec    ExecSupport
	Files   FileSupport
	// Isolation is for people: "gVisor (user-space kernel)".
	Isolation string
	// ImageStore is set by the SDK for a driver that is an ImageStore.
	ImageStore bool
}

// SpecSupport lists the fields of SandboxSpec that are enforced.
type SpecSupport struct {
	Image, CPUs, Memory, Disk, PIDs, GPU, Workdir, Env bool
	// Labels says that the user's labels are kept and come back from List.
	Labels bool
}

// NetworkSupport lists the policies that are enforced.
type NetworkSupport struct {
	None, Open bool
	// AllowHosts is empty when host names cannot be allowed.
	AllowHosts HostMatch
	AllowCIDRs bool
	// AllowCIDRsIPv6 adds IPv6 ranges to AllowCIDRs.
	AllowCIDRsIPv6 bool
	// AllowBoth says that hosts and CIDRs may be in one policy.
	AllowBoth bool
	// OpenCIDRs says that an open network, which reaches no private range by itself,
	// can be given some by CIDRs.
	OpenCIDRs bool
	// AccessLog is set by the SDK for a driver that is an AccessLogger.
	AccessLog bool
}

// HostMatch is how allowed host names are enforced.
type HostMatch string

// The ways to match hosts.
const (
	// MatchAddress lets through the addresses that an allowed name resolves to.
	MatchAddress HostMatch = "address"
	// MatchSNI looks at the name in the TLS handshake; other protocols do not pass.
	MatchSNI HostMatch = "sni"
	// MatchProxy sends requests through a proxy.
	MatchProxy HostMatch = "proxy"
)

// LeaseSupport says how long sandboxes live and who ends them.
type LeaseSupport struct {
	// TTL says that the backend itself ends a sandbox at its expiry. Without it,
	// `sandboxctl gc` does, from the expiry on the sandbox's labels.
	TTL bool
	// Unlimited says that a sandbox may have no expiry.
	Unlimited bool
	// MinTTL and MaxTTL are zero when there is no limit.
	MinTTL, MaxTTL time.Duration
	IdleTimeout    bool
	// Renew is set by the SDK for a driver that is a Renewer.
	Renew bool
}

// ExecSupport says what Exec can do.
type ExecSupport struct {
	Stdin, TTY, Signals, User bool
	// SurvivesTimeout says that sandbox and files outlive a command that timed out.
	SurvivesTimeout bool
	// Background says that a process left behind outlives the command that started it.
	Background bool
	// MaxTimeout, unless zero, is the longest that a command may run.
	MaxTimeout time.Duration
}

// FileSupport says what can be done with files in a sandbox.
type FileSupport struct {
	// Files and Archive are set by the SDK for a driver that is a FileSystem or an
	// Archiver.
	Files, Archive bool
	SymlinkWrite   SymlinkWrite
}

// SymlinkWrite is what WriteFile does when the path is a symbolic link.
type SymlinkWrite string

// What a write through a symbolic link does.
const (
	// SymlinkFollow changes the file that the link points to.
	SymlinkFollow SymlinkWrite = "follow"
	// SymlinkReplace puts a regular file in the link's place.
	SymlinkReplace SymlinkWrite = "replace"
)
