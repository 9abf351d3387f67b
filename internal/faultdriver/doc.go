// Package faultdriver is a driver that misbehaves on purpose, for the tests of the
// host and of the command line. Its guest commands run on this machine, in a directory
// of the sandbox's own; it is no sandbox.
//
// It is written on the wire's level, without the SDK's server, because that would not
// let it break the protocol. Which fault it has is said in one of three ways:
//
//   - what goes wrong before the first call, in a file named like the executable with
//     ".fault" at the end;
//   - what concerns the whole backend, in the setting "fault";
//   - what concerns one sandbox, in the create option "fault", which it keeps for life.
//
// A driver that behaves can be held at any step of a call, see Gates, so that a test can
// kill somebody at exactly that moment.
package faultdriver
