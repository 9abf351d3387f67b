package conformance

import (
	"slices"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Group is what a case is about.
type Group string

// The groups of cases, in the order in which they are reported.
const (
	GroupLifecycle   Group = "lifecycle"
	GroupExec        Group = "exec"
	GroupOutput      Group = "output"
	GroupTimeout     Group = "timeout"
	GroupFiles       Group = "files"
	GroupArchive     Group = "archive"
	GroupIsolation   Group = "isolation"
	GroupNetwork     Group = "network"
	GroupLease       Group = "lease"
	GroupConcurrency Group = "concurrency"
)

// Groups returns all groups in the order of reports.
func Groups() []Group {
	return []Group{
		GroupLifecycle, GroupExec, GroupOutput, GroupTimeout, GroupFiles, GroupArchive,
		GroupIsolation, GroupNetwork, GroupLease, GroupConcurrency,
	}
}

// Case is one thing that a driver must do.
type Case struct {
	// ID is "group.name" and never changes, so that reports can be compared.
	ID    string
	Group Group
	// Reason says in one line why it matters.
	Reason string
	// Source says where it was learnt: rows of the Airflow sandbox contract
	// ("airflow 22") and of the collected user reports ("reports 24"), or the design.
	Source string
	// Needs are the capabilities without which the case is skipped.
	Needs []Need
	// Serial cases measure something and run alone.
	Serial bool
	// Limit is how long the case may take; zero means two minutes.
	Limit time.Duration

	index int
	run   func(t *T)
}

// Need is a capability that a case depends on.
type Need struct {
	Capability string
	claimed    func(plugin.Capabilities) bool
}

// The needs of cases.
var (
	needsStdin      = Need{"exec.stdin", func(c plugin.Capabilities) bool { return c.Exec.Stdin }}
	needsTTY        = Need{"exec.tty", func(c plugin.Capabilities) bool { return c.Exec.TTY }}
	needsSignals    = Need{"exec.signals", func(c plugin.Capabilities) bool { return c.Exec.Signals }}
	needsUser       = Need{"exec.user", func(c plugin.Capabilities) bool { return c.Exec.User }}
	needsBackground = Need{"exec.background", func(c plugin.Capabilities) bool { return c.Exec.Background }}
	needsMaxTimeout = Need{"exec.max_timeout", func(c plugin.Capabilities) bool { return c.Exec.MaxTimeout > 0 }}

	needsImage   = Need{"spec.image", func(c plugin.Capabilities) bool { return c.Spec.Image }}
	needsEnv     = Need{"spec.env", func(c plugin.Capabilities) bool { return c.Spec.Env }}
	needsWorkdir = Need{"spec.workdir", func(c plugin.Capabilities) bool { return c.Spec.Workdir }}
	needsLabels  = Need{"spec.labels", func(c plugin.Capabilities) bool { return c.Spec.Labels }}
	needsCPUs    = Need{"spec.cpus", func(c plugin.Capabilities) bool { return c.Spec.CPUs }}
	needsDisk    = Need{"spec.disk", func(c plugin.Capabilities) bool { return c.Spec.Disk }}
	needsPIDs    = Need{"spec.pids", func(c plugin.Capabilities) bool { return c.Spec.PIDs }}
	needsMemory  = Need{"spec.memory", func(c plugin.Capabilities) bool { return c.Spec.Memory }}

	needsFiles   = Need{"files", func(c plugin.Capabilities) bool { return c.Files.Files }}
	needsArchive = Need{"files.archive", func(c plugin.Capabilities) bool { return c.Files.Archive }}

	needsNetworkNone = Need{"network.none", func(c plugin.Capabilities) bool { return c.Network.None }}
	needsNetworkOpen = Need{"network.open", func(c plugin.Capabilities) bool { return c.Network.Open }}
	needsAllowHosts  = Need{"network.allow_hosts", func(c plugin.Capabilities) bool { return c.Network.AllowHosts != "" }}
	needsAccessLog   = Need{"network.access_log", func(c plugin.Capabilities) bool { return c.Network.AccessLog }}
	needsAllowCIDRs  = Need{"network.allow_cidrs", func(c plugin.Capabilities) bool { return c.Network.AllowCIDRs }}

	needsTTL         = Need{"lease.ttl", func(c plugin.Capabilities) bool { return c.Lease.TTL }}
	needsUnlimited   = Need{"lease.unlimited", func(c plugin.Capabilities) bool { return c.Lease.Unlimited }}
	needsIdleTimeout = Need{"lease.idle_timeout", func(c plugin.Capabilities) bool { return c.Lease.IdleTimeout }}
	needsRenew       = Need{"lease.renew", func(c plugin.Capabilities) bool { return c.Lease.Renew }}
)

// Cases returns all cases, in the order of reports.
func Cases() []Case {
	all := slices.Concat(
		lifecycleCases(), refCases(), execCases(), execInputCases(), execControlCases(), outputCases(), outputVolumeCases(),
		timeoutCases(), fileCases(), filePathCases(), fileListCases(), fileVolumeCases(), archiveCases(), archiveEdgeCases(),
		isolationCases(), limitCases(), networkCases(), leaseCases(), concurrencyCases(), leftoverCases(),
	)
	for i := range all {
		all[i].index = i
	}
	return all
}
