// Package plugin is the SDK for sandboxctl drivers.
//
// A driver is a program that drives one backend. It implements [Driver], five
// methods, and calls [Serve] from main; sandboxctl starts it as a subprocess
// and talks to it over hashicorp/go-plugin (gRPC, see driverpb/v1). What more a
// backend can do is added as small interfaces: [Configurer], [HealthChecker],
// [Inspector], [Renewer], [FileSystem] and [Archiver]. A backend that has
// nothing but exec gets files from the package plugin/posix.
//
// The host does once what must be equal everywhere: names, ids, labels, leases,
// validation, output limits, exit codes. A driver does what its backend alone
// can do, keeps no state between calls unless the backend leaves no other way,
// and returns the errors of this package so that a user learns what to do.
package plugin
