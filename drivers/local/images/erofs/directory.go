package erofs

import (
	"encoding/binary"
	"slices"
)

// The types of file in a directory's entries.
var direntTypes = map[uint16]byte{TypeRegular: 1, TypeDirectory: 2, TypeFIFO: 5, TypeSymlink: 7}

// blocksOfDirectory divides a directory's names, "." and ".." among them, into blocks.
// Each block holds its entries and then their names, and the names of all blocks are
// in order, so that readers can search.
func blocksOfDirectory(node *Node) [][]string {
	names := append(node.names(), ".", "..")
	slices.Sort(names)
	var blocks [][]string
	begin, used := 0, 0
	for i, name := range names {
		need := direntSize + len(name)
		if used+need > blockSize {
			blocks = append(blocks, names[begin:i])
			begin, used = i, 0
		}
		used += need
	}
	return append(blocks, names[begin:])
}

// directory returns the data of a directory, in whole blocks.
func (p *plan) directory(node *Node) []byte {
	var data []byte
	for _, names := range blocksOfDirectory(node) {
		block := make([]byte, blockSize)
		offset := direntSize * len(names)
		for i, name := range names {
			target := node.Children[name]
			switch name {
			case ".":
				target = node
			case "..":
				target = p.places[node].parent
			}
			entry := block[direntSize*i:]
			binary.LittleEndian.PutUint64(entry, p.places[target].slot)
			binary.LittleEndian.PutUint16(entry[8:], uint16(offset))
			entry[10] = direntTypes[target.Mode&TypeMask]
			offset += copy(block[offset:], name)
		}
		data = append(data, block...)
	}
	return data
}
