// Package erofs writes file trees as images of EROFS, the read-only file system that
// gVisor, and Linux, can use as a root. It writes the plainest form there is, which is
// what gVisor reads: nothing is compressed, and there are no extended attributes.
//
// The format is described in https://docs.kernel.org/filesystems/erofs.html.
package erofs

import (
	"maps"
	"slices"
)

// The types of file in Node.Mode, as in stat(2).
const (
	TypeMask      = 0o170000
	TypeFIFO      = 0o010000
	TypeDirectory = 0o040000
	TypeRegular   = 0o100000
	TypeSymlink   = 0o120000
)

// Node is a file. A node that is in the tree under several names is a file with hard
// links; a directory must have one name only.
type Node struct {
	// Mode is one of the types and the twelve bits that chmod sets.
	Mode     uint16
	UID, GID uint32
	// Seconds and Nanoseconds are when it was last changed, since 1970.
	Seconds     uint64
	Nanoseconds uint32
	// Data is what a regular file holds.
	Data Extent
	// Target is where a symbolic link leads: 1 to MaxTarget bytes.
	Target string
	// Children are a directory's entries by their names, which are 1 to MaxName bytes
	// without "/" and NUL, and neither "." nor "..".
	Children map[string]*Node
}

// The limits of names and of symbolic links, in bytes; those of Linux.
const (
	MaxName   = 255
	MaxTarget = 4095
)

// Extent is where the content of a file is in the image.
type Extent struct {
	// Block is the number of its first block. It means nothing without a Size.
	Block uint32
	// Size is in bytes.
	Size uint64
}

// end is the block after the last one.
func (e Extent) end() uint32 { return e.Block + blocksOf(e.Size) }

// NewDirectory returns an empty directory of root's.
func NewDirectory(permissions uint16) *Node {
	return &Node{Mode: TypeDirectory | permissions&0o7777, Children: map[string]*Node{}}
}

// IsDirectory reports whether the node is one.
func (n *Node) IsDirectory() bool { return n.Mode&TypeMask == TypeDirectory }

// IsSymlink reports whether the node is a symbolic link.
func (n *Node) IsSymlink() bool { return n.Mode&TypeMask == TypeSymlink }

// IsRegular reports whether the node is a regular file.
func (n *Node) IsRegular() bool { return n.Mode&TypeMask == TypeRegular }

// names returns a directory's entries in the order that EROFS wants.
func (n *Node) names() []string { return slices.Sorted(maps.Keys(n.Children)) }
