// Package modaldouble is a stand-in for the Modal service: its control plane
// and its command router, served over real sockets from the protocol package
// that the vendor's Go module publishes. It runs commands for real and knows
// nothing about this project's driver: what it answers comes from what was
// observed of the service and of the vendor's own clients.
//
// Each sandbox has its own root directory and its own PID, mount and network
// namespaces. That takes root; an ordinary user's program calls [BecomeRoot]
// first. Limits are enforced where cgroups can be made. Lifetimes and idle
// timeouts are enforced. Faults and lags that were reported about the service are switched on
// per server with [Server.Inject] and [Server.Configure].
//
// What it does not do: tunnels, volumes, readiness probes and snapshots. Its
// network reaches this machine's own addresses at most, where the server is the
// machine's root and there is an ip program, and allowed hosts are checked and kept, but stay closed.
// It runs on Linux only.
package modaldouble
