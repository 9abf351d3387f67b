// Package reference is a driver that is right, on purpose simple, and of no use but
// to check the conformance suite: a sandbox is a set of Linux namespaces with the
// machine's /usr, made with util-linux's unshare and entered with nsenter, as root.
//
// With the setting {"defect": NAME} it is wrong in one way, see Defects.
package reference
