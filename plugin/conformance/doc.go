// Package conformance checks that a driver does what package plugin promises of it.
// It talks to the driver as sandboxctl does, over the real protocol, and judges what
// it sees: bytes, exit statuses, kinds of error, what is left behind.
//
// A vendor runs it with `sandboxctl driver test NAME|PATH`. In a driver's own tests:
//
//	func TestConformance(t *testing.T) {
//		target := conformance.Binary(conformance.BinaryOptions{Name: "acme", Path: buildDriver(t)})
//		target.CheckedAgainst = "the acme simulator 1.2"
//		conformancetest.Test(t, target)
//	}
//
// and over a host that is there already, as the command does:
//
//	report, err := conformance.Run(ctx, conformance.Hosted(h, name), conformance.Options{})
//
// A case that needs a capability is skipped only when the driver does not claim it;
// a claim that is false fails a case. What a case cannot look at, because a guest has
// no python3 for example, is skipped with that reason. Cases assume a POSIX sh with
// coreutils or busybox in the guest and a writable /tmp.
//
// Cases share one sandbox where they can, each in its own directory, and run in
// parallel unless they measure. Every sandbox is destroyed, and a last case checks
// that the backend has none of them any more.
package conformance
