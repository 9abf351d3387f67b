// Package guest is the helper that the local driver runs inside a sandbox. It is
// mounted read-only and started with "runsc exec" for every call: it supervises a
// command, or it does one thing with files, so that images without a shell work and
// no byte passes through one.
//
// The driver talks to it over inherited pipes: requests as JSON values on
// [ControlFD], replies as JSON values on [ReplyFD], content on the standard streams.
// The end of the control pipe means that the driver has given up or is dead; the
// helper then undoes what it was doing.
//
// The package uses little but the standard library, since how large the helper is
// decides how long each call takes.
package guest
