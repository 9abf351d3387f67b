package erofs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	superblockOffset = 1024
	superblockSize   = 128
	superblockMagic  = 0xe0f5e1e2
	// inodeSize is that of an extended inode; inodes are numbered in slots of slotSize.
	inodeSize = 64
	slotSize  = 32
	slotBits  = 5
	// direntSize is without the name.
	direntSize = 12
	// The layouts in an inode's format: it is an extended one, and its data is in
	// blocks of its own, or follows the inode.
	formatExtended = 1
	layoutPlain    = 0 << 1
	layoutInline   = 2 << 1
)

// plan says where everything of a tree goes: inodes first, then directories and links
// that are too long to follow their inode.
type plan struct {
	// nodes are in the order in which they are written.
	nodes  []*Node
	places map[*Node]*place
	// meta is the first block of the inodes, and end the block after the last.
	meta, end uint32
}

// place is what a tree does not say about a node.
type place struct {
	// slot is the inode's number, and where it is.
	slot  uint64
	links uint32
	// parent is set for directories.
	parent *Node
	// size is of the data, which begins at block unless it follows the inode.
	size   uint64
	block  uint32
	inline bool
}

func newPlan(root *Node, first uint32) (*plan, error) {
	p := &plan{places: map[*Node]*place{}, meta: first}
	if err := p.gather(root); err != nil {
		return nil, err
	}
	// Slot 0 stays free: some programs take an inode number of zero for no file.
	slot := uint64(inodeSize / slotSize)
	for _, node := range p.nodes {
		at := p.places[node]
		at.inline = node.IsSymlink() && len(node.Target) <= blockSize-inodeSize
		need := uint64(inodeSize)
		if at.inline {
			need += uint64(len(node.Target))
			// What follows an inode must be in one block with its beginning.
			if offset := slot << slotBits & (blockSize - 1); offset+need > blockSize {
				slot += (blockSize - offset) >> slotBits
			}
		}
		at.slot = slot
		slot += (need + slotSize - 1) >> slotBits
	}
	next := uint64(first) + (slot<<slotBits+blockSize-1)>>blockBits
	for _, node := range p.nodes {
		at := p.places[node]
		switch {
		case node.IsDirectory():
			at.size = uint64(len(blocksOfDirectory(node))) << blockBits
		case node.IsSymlink():
			at.size = uint64(len(node.Target))
		case node.IsRegular():
			at.size, at.block = node.Data.Size, node.Data.Block
			continue
		}
		if at.size > 0 && !at.inline {
			at.block = uint32(next)
			next += uint64(blocksOf(at.size))
		}
		if next > math.MaxUint32 {
			return nil, errors.New("the image is larger than EROFS can be")
		}
	}
	p.end = uint32(next)
	return p, nil
}

// gather lists the nodes, counts their names and finds out what cannot be written.
func (p *plan) gather(root *Node) error {
	p.places[root] = &place{links: 2, parent: root}
	p.nodes = []*Node{root}
	for at := 0; at < len(p.nodes); at++ {
		node := p.nodes[at]
		for _, name := range node.names() {
			child := node.Children[name]
			if name == "" || len(name) > MaxName {
				return fmt.Errorf("the name %.40q... has %d bytes; 1 to %d can be written", name, len(name), MaxName)
			}
			if child.IsSymlink() && (child.Target == "" || len(child.Target) > MaxTarget) {
				return fmt.Errorf("the symbolic link %q has a target of %d bytes; 1 to %d can be written", name, len(child.Target), MaxTarget)
			}
			if known := p.places[child]; known != nil {
				if child.IsDirectory() {
					return fmt.Errorf("the directory %q is in the tree twice", name)
				}
				known.links++
				continue
			}
			fresh := &place{links: 1}
			if child.IsDirectory() {
				fresh.links, fresh.parent = 2, node
				p.places[node].links++
			}
			p.places[child] = fresh
			p.nodes = append(p.nodes, child)
		}
	}
	return nil
}

func (p *plan) superblock() []byte {
	block := make([]byte, superblockSize)
	little := binary.LittleEndian
	little.PutUint32(block, superblockMagic)
	block[12] = blockBits
	little.PutUint16(block[14:], uint16(p.places[p.nodes[0]].slot))
	little.PutUint64(block[16:], uint64(len(p.nodes)))
	little.PutUint32(block[36:], p.end)
	little.PutUint32(block[40:], p.meta)
	return block
}

// writeTree writes inodes and directories.
func (w *Writer) writeTree(p *plan) error {
	out := bufio.NewWriterSize(io.NewOffsetWriter(w.file, int64(p.meta)<<blockBits), chunkSize)
	written := uint64(0)
	pad := func(to uint64) error {
		for written < to {
			n, err := out.Write(zeros[:min(to-written, blockSize)])
			if err != nil {
				return err
			}
			written += uint64(n)
		}
		return nil
	}
	put := func(data []byte) error {
		n, err := out.Write(data)
		written += uint64(n)
		return err
	}
	for number, node := range p.nodes {
		at := p.places[node]
		if err := pad(at.slot << slotBits); err != nil {
			return err
		}
		if err := put(p.inode(node, uint32(number+1))); err != nil {
			return err
		}
		if at.inline {
			if err := put([]byte(node.Target)); err != nil {
				return err
			}
		}
	}
	for _, node := range p.nodes {
		at := p.places[node]
		if node.IsRegular() || at.size == 0 || at.inline {
			continue
		}
		if err := pad(uint64(at.block-p.meta) << blockBits); err != nil {
			return err
		}
		data := []byte(node.Target)
		if node.IsDirectory() {
			data = p.directory(node)
		}
		if err := put(data); err != nil {
			return err
		}
	}
	if err := pad(uint64(p.end-p.meta) << blockBits); err != nil {
		return err
	}
	return out.Flush()
}

func (p *plan) inode(node *Node, number uint32) []byte {
	at := p.places[node]
	inode := make([]byte, inodeSize)
	little := binary.LittleEndian
	format := uint16(formatExtended | layoutPlain)
	if at.inline {
		format = formatExtended | layoutInline
	}
	little.PutUint16(inode, format)
	little.PutUint16(inode[4:], node.Mode)
	little.PutUint64(inode[8:], at.size)
	little.PutUint32(inode[16:], at.block)
	little.PutUint32(inode[20:], number)
	little.PutUint32(inode[24:], node.UID)
	little.PutUint32(inode[28:], node.GID)
	little.PutUint64(inode[32:], node.Seconds)
	little.PutUint32(inode[40:], node.Nanoseconds)
	little.PutUint32(inode[44:], at.links)
	return inode
}
