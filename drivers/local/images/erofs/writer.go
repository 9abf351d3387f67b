package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

const (
	blockBits = 12
	blockSize = 1 << blockBits
	// chunkSize is how much of a file's content is read and written at once.
	chunkSize = 64 * blockSize
)

// Writer writes an image. First comes the content of files, in any order, then Finish
// writes the tree; only the tree is held in memory.
type Writer struct {
	file *os.File
	// next is the first block that is not used yet.
	next   uint32
	buffer []byte
}

// NewWriter returns a writer to a file, which has to be empty.
func NewWriter(file *os.File) *Writer {
	// The first block is the superblock's.
	return &Writer{file: file, next: 1, buffer: make([]byte, chunkSize)}
}

// Size returns how many bytes the image has so far.
func (w *Writer) Size() int64 { return int64(w.next) << blockBits }

// Add copies the content of a file, of exactly size bytes, into the image. What is
// missing in r is io.ErrUnexpectedEOF. Runs of zeros become holes, so that an image
// that is huge for no reason does not fill the disk.
func (w *Writer) Add(r io.Reader, size uint64) (Extent, error) {
	extent := Extent{Block: w.next, Size: size}
	if size == 0 {
		return Extent{}, nil
	}
	blocks := (size-1)>>blockBits + 1
	if blocks > math.MaxUint32-uint64(w.next) {
		return Extent{}, errors.New("the image is larger than EROFS can be")
	}
	at := int64(w.next) << blockBits
	for left := size; left > 0; {
		chunk := w.buffer[:min(left, chunkSize)]
		if _, err := io.ReadFull(r, chunk); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Extent{}, err
		}
		if !zero(chunk) {
			if _, err := w.file.WriteAt(chunk, at); err != nil {
				return Extent{}, err
			}
		}
		at += int64(len(chunk))
		left -= uint64(len(chunk))
	}
	w.next += uint32(blocks)
	return extent, nil
}

// AddBytes adds a content that is in memory.
func (w *Writer) AddBytes(content []byte) (Extent, error) {
	return w.Add(bytes.NewReader(content), uint64(len(content)))
}

// Read returns the content of a file that was added.
func (w *Writer) Read(extent Extent) io.Reader {
	return io.NewSectionReader(w.file, int64(extent.Block)<<blockBits, int64(extent.Size))
}

var zeros [blockSize]byte

func zero(data []byte) bool {
	for len(data) > blockSize {
		if !bytes.Equal(data[:blockSize], zeros[:]) {
			return false
		}
		data = data[blockSize:]
	}
	return bytes.Equal(data, zeros[:len(data)])
}

func blocksOf(size uint64) uint32 { return uint32((size + blockSize - 1) >> blockBits) }

// Unused calls use with the parts of the image, in bytes, that hold content which is
// in no file of the tree: it was replaced or removed after it had been added.
func (w *Writer) Unused(root *Node, use func(offset, size int64) error) error {
	var used []Extent
	collect(root, func(node *Node) {
		if node.IsRegular() && node.Data.Size > 0 {
			used = append(used, node.Data)
		}
	})
	slices.SortFunc(used, func(a, b Extent) int { return int(int64(a.Block) - int64(b.Block)) })
	at := uint32(1)
	for _, extent := range append(used, Extent{Block: w.next}) {
		if extent.Block > at {
			if err := use(int64(at)<<blockBits, int64(extent.Block-at)<<blockBits); err != nil {
				return err
			}
		}
		at = max(at, extent.end())
	}
	return nil
}

// collect visits every node once, parents before their entries.
func collect(root *Node, visit func(*Node)) {
	seen := map[*Node]bool{}
	queue := []*Node{root}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		if seen[node] {
			continue
		}
		seen[node] = true
		visit(node)
		for _, name := range node.names() {
			queue = append(queue, node.Children[name])
		}
	}
}

// Begins reports whether a file begins as an image does. What follows is not looked at.
func Begins(file io.ReaderAt) bool {
	var magic [4]byte
	_, err := file.ReadAt(magic[:], superblockOffset)
	return err == nil && binary.LittleEndian.Uint32(magic[:]) == superblockMagic
}

// Finish writes the tree below root, which has to be a directory, and the superblock.
// The file's content is complete then but not synced.
func (w *Writer) Finish(root *Node) error {
	if !root.IsDirectory() {
		return errors.New("the root of an image has to be a directory")
	}
	plan, err := newPlan(root, w.next)
	if err != nil {
		return err
	}
	if err := w.writeTree(plan); err != nil {
		return err
	}
	if err := w.file.Truncate(int64(plan.end) << blockBits); err != nil {
		return err
	}
	w.next = plan.end
	if _, err := w.file.WriteAt(plan.superblock(), superblockOffset); err != nil {
		return fmt.Errorf("write the superblock: %w", err)
	}
	return nil
}
