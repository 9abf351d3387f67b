// Package transfer is the host side of `sandboxctl cp`: the path grammar, the
// rules that decide where a copy lands, and the tar streams in both directions.
//
// It knows nothing of drivers or of the wire. A copy is put together like this:
//
//	src, dst, err := ParsePair(args[0], args[1])
//	from, err := StatSource(ctx, srcStater, src, followLinks)
//	to, err := StatDest(ctx, dstStater, dst)
//	target, err := Plan(from, to)
//
// and then, by direction:
//
//	local -> sandbox    Pack(ctx, pipe, src.Path, PackOptions{Name: target.Name}) | driver PutArchive(target.Dir)
//	sandbox -> local    driver GetArchive(src.Bare()) | Unpack(ctx, pipe, target, UnpackOptions{})
//	sandbox -> sandbox  driver GetArchive | Rebase(ctx, w, r, target.Name, RebaseOptions{}) | driver PutArchive
//	sandbox -> stdout   driver GetArchive | Passthrough(ctx, os.Stdout, r, nil)
//	stdin -> sandbox    Passthrough(ctx, w, os.Stdin, nil) | driver PutArchive(target.Dir)
//
// GetArchive follows a link at its path for -L, and when src.FollowsLink says so.
//
// Two duties stay with the caller, because only it holds both ends of a pipe.
// When one end fails it closes the pipe with that error (io.Pipe's
// CloseWithError), never with a plain EOF, so that the other end can tell a cut
// stream from a complete one. And when ctx ends it closes the pipe too: a read
// that is already blocked cannot be interrupted from here.
//
// # What is carried
//
// Regular files, directories and symbolic links, with their permission bits
// (0777) and their modification time in whole seconds. Owners are not carried:
// everything arrives as uid and gid 0 on the wire and as the caller on the host.
// The setuid, setgid and sticky bits are cleared in both directions, since they
// mean nothing without the owner. Extended attributes are not carried.
package transfer
