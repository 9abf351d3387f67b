// Package sbxdouble is a stand-in for Docker's sbx program, for tests.
//
// It is written from public documentation and bug reports of sbx 0.35 to 0.45
// and knows nothing about the driver it serves. Where the public record is
// silent the behaviour is drawn from Config.Seed, so that a driver can be run
// against every possibility.
//
// Commands run for real. Each sandbox is a "machine": one process that is PID 1
// of its own PID, mount, network, host-name and IPC namespaces, sees the host's
// program directories read-only and everything else as a private writable root,
// and owns every process started in it. Nothing a guest writes lands on the
// host except in the workspace it was given. There is no way to run guest
// commands outside of a machine: where namespaces are not available, creating a
// sandbox fails and says so.
//
// The program is configured by the file sbxdouble.json beside the executable,
// so that no environment variable has to survive the programs in between.
package sbxdouble
