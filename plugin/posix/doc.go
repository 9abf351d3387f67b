// Package posix gives a driver files when its backend has nothing but exec: it
// implements [plugin.FileSystem] and [plugin.Archiver] with small shell programs
// that run in the sandbox.
//
//	type Driver struct {
//		*posix.Files
//		// ...
//	}
//
//	func New() *Driver {
//		d := &Driver{}
//		d.Files = posix.New(d.Exec)
//		return d
//	}
//
// The driver then claims plugin.SymlinkFollow. Its Exec has to carry stdin, and
// both channels, byte for byte.
//
// In the sandbox a POSIX sh is needed (dash, bash and busybox ash are tested) and
// the usual tools of coreutils or busybox; tar for archives. A recipe checks for its
// tools first, and what is missing is named in an error of kind KindRefused. Every
// call is one exec, whatever the size of the file or directory.
//
// Content only ever travels on stdin and stdout, because an argument may have at
// most 128 KiB. Paths are arguments, escaped, so that any byte in them survives
// backends that carry arguments as JSON or quote them for a shell.
//
// An upload goes to a hidden temporary file beside its target, ends with a trailer
// that says how long it is, and takes the target's name only when it is whole. An
// archive is likewise complete in the sandbox before any of it is unpacked, and so
// needs room for two.
package posix
