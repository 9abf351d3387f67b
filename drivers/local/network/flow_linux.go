package network

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// serverConn is a *net.TCPConn or a *net.UDPConn.
type serverConn interface {
	net.Conn
	syscall.Conn
}

// flow carries bytes or datagrams between the guest and a server. It holds a buffer
// only while it has something to carry.
type flow struct {
	guest  tcpip.Endpoint
	queue  *waiter.Queue
	server serverConn
	// stream says that an empty read is the end.
	stream bool
	// moved, where set, is told of everything that is carried.
	moved func()

	endOnce sync.Once
	ended   chan struct{}
}

var errFlowEnded = errors.New("the flow was ended")

// copyBuffers holds the buffers of flows that are at work: *[]byte of copySize.
var copyBuffers = sync.Pool{New: func() any { buf := make([]byte, copySize); return &buf }}

// copySize is enough for every datagram.
const copySize = 64 << 10

// end makes whoever carries something stop.
func (f *flow) end() { f.endOnce.Do(func() { close(f.ended) }) }

// wait waits for the guest's end.
func (f *flow) wait(ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-f.ended:
		return errFlowEnded
	}
}

// up carries what the guest sends, until it says that nothing follows.
func (f *flow) up() error {
	entry, readable := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	f.queue.EventRegister(&entry)
	defer f.queue.EventUnregister(&entry)
	for {
		err := f.upOnce()
		if err == errWouldBlock {
			err = f.wait(readable)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var errWouldBlock = errors.New("nothing to read")

func (f *flow) upOnce() error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	writer := tcpip.SliceWriter(*buf)
	read, err := f.guest.Read(&writer, tcpip.ReadOptions{})
	switch err.(type) {
	case nil:
	case *tcpip.ErrWouldBlock:
		return errWouldBlock
	case *tcpip.ErrClosedForReceive:
		return io.EOF
	default:
		return guestError{err}
	}
	f.carried()
	_, writeErr := f.server.Write((*buf)[:read.Count])
	if !f.stream && (errors.Is(writeErr, unix.EMSGSIZE) || errors.Is(writeErr, unix.ENOBUFS)) {
		// A datagram may be lost.
		return nil
	}
	return writeErr
}

// down carries what the server sends, until it says that nothing follows.
func (f *flow) down() error {
	raw, err := f.server.SyscallConn()
	if err != nil {
		return err
	}
	entry, writable := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	f.queue.EventRegister(&entry)
	defer f.queue.EventUnregister(&entry)
	for {
		buf, n, err := readWhenReady(raw)
		if err == nil && n == 0 && f.stream {
			copyBuffers.Put(buf)
			return nil
		}
		if err == nil {
			f.carried()
			err = f.toGuest((*buf)[:n], writable)
		}
		if buf != nil {
			copyBuffers.Put(buf)
		}
		if err != nil {
			return err
		}
	}
}

// readWhenReady takes a buffer only when there is something to read.
func readWhenReady(raw syscall.RawConn) (buf *[]byte, n int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		buf = copyBuffers.Get().(*[]byte)
		n, err = retry(func() (int, error) { return unix.Read(int(fd), *buf) })
		if err == unix.EAGAIN {
			copyBuffers.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	return buf, n, errors.Join(waitErr, err)
}

func (f *flow) toGuest(data []byte, writable <-chan struct{}) error {
	for {
		n, err := f.guest.Write(bytes.NewReader(data), tcpip.WriteOptions{})
		data = data[n:]
		switch err.(type) {
		case nil:
			if len(data) == 0 {
				return nil
			}
		case *tcpip.ErrWouldBlock:
			if err := f.wait(writable); err != nil {
				return err
			}
		default:
			if !f.stream {
				// A datagram may be lost; that the guest is gone shows elsewhere.
				return nil
			}
			return guestError{err}
		}
	}
}

func (f *flow) carried() {
	if f.moved != nil {
		f.moved()
	}
}

// guestError is an error of the guest's side of a flow.
type guestError struct{ fault tcpip.Error }

func (e guestError) Error() string { return e.fault.String() }
