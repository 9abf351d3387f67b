package network

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallLink is a link whose socket holds a few packets only.
func smallLink(t *testing.T) (ours *link, guests *os.File) {
	t.Helper()
	file, guests, err := Pair()
	must(t, err)
	t.Cleanup(func() { _ = guests.Close() })
	must(t, unix.SetsockoptInt(int(file.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF, 106496))
	patience := unix.NsecToTimeval(int64(hang))
	must(t, unix.SetsockoptTimeval(int(guests.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))
	ours, err = newLink(file, func([]byte) bool { return true })
	must(t, err)
	t.Cleanup(ours.Close)
	return ours, guests
}

// TestLinkWaits has a guest that reads slower than it is written to.
func TestLinkWaits(t *testing.T) {
	ours, guests := smallLink(t)
	const packets = 2000
	go func() {
		for i := range packets {
			packet := make([]byte, 30000)
			binary.BigEndian.PutUint32(packet, uint32(i))
			if err := ours.write([][]byte{packet[:100], packet[100:]}); err != nil {
				t.Errorf("packet %d: %v", i, err)
				return
			}
		}
	}()
	buf := make([]byte, MTU)
	for i := range packets {
		// A socket with a time-out is interrupted by every signal.
		n, err := retry(func() (int, error) { return unix.Read(int(guests.Fd()), buf) })
		must(t, err)
		if n != 30000 || binary.BigEndian.Uint32(buf) != uint32(i) {
			t.Fatalf("packet %d is number %d with %d bytes", i, binary.BigEndian.Uint32(buf), n)
		}
	}
}

// TestLinkStalls has a guest that does not read at all, then does, then is gone.
func TestLinkStalls(t *testing.T) {
	ours, guests := smallLink(t)
	packet := make([]byte, 30000)
	began, lost := time.Now(), 0
	for range 1000 {
		if ours.write([][]byte{packet}) != nil {
			lost++
		}
	}
	if took := time.Since(began); took < linkPatience/2 || took > 20*linkPatience || lost < 900 {
		t.Errorf("a thousand packets took %v, and %d were lost", took, lost)
	}
	must(t, unix.SetNonblock(int(guests.Fd()), true))
	for err := error(nil); err == nil; {
		_, err = unix.Read(int(guests.Fd()), make([]byte, MTU))
	}
	if err := ours.write([][]byte{packet}); err != nil {
		t.Errorf("after the guest has read: %v", err)
	}
	must(t, guests.Close())
	if err := ours.write([][]byte{packet}); err == nil {
		t.Error("a packet to nobody was sent")
	}
}

// TestLinkEnds closes our end while one goroutine reads and one waits to write.
func TestLinkEnds(t *testing.T) {
	ours, _ := smallLink(t)
	go ours.receive()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for ours.write([][]byte{make([]byte, 30000)}) == nil {
		}
	}()
	ours.Close()
	for _, each := range []<-chan struct{}{written, ours.gone} {
		select {
		case <-each:
		case <-time.After(hang):
			t.Fatal("it does not end")
		}
	}
}

// TestEmptyMessages are not the guest's end.
func TestEmptyMessages(t *testing.T) {
	ours, guests := smallLink(t)
	seen := make(chan int, 10)
	ours.admit = func(packet []byte) bool { seen <- len(packet); return false }
	go ours.receive()
	for _, each := range [][]byte{{}, {0x45}, bytes.Repeat([]byte{0x60}, MTU), bytes.Repeat([]byte{0x45}, MTU+10)} {
		_, err := unix.Write(int(guests.Fd()), each)
		must(t, err)
	}
	for _, want := range []int{0, 1, MTU, MTU} {
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("a packet of %d bytes, want %d", got, want)
			}
		case <-ours.gone:
			t.Fatal("an empty message was taken for the end")
		}
	}
	must(t, guests.Close())
	<-ours.gone
}

// TestHold has our end closed as when the keeper is killed: the guest's end is at an end
// only when nobody holds the other one any more.
func TestHold(t *testing.T) {
	ours, guests, err := Pair()
	must(t, err)
	defer guests.Close()
	dir := t.TempDir()
	held, err := Hold(ours, dir)
	must(t, err)
	must(t, ours.Close())
	fd := int(guests.Fd())
	if _, err := unix.Write(fd, []byte{0x45}); err != nil {
		t.Errorf("a packet to nobody: %v", err)
	}
	if hungUp(fd) {
		t.Error("the link has ended although it is held")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, _, _, _, err := unix.Recvmsg(int(held.Fd()), make([]byte, 1), make([]byte, 64), unix.MSG_DONTWAIT); err == nil {
		t.Error("what is held can be received")
	}
	must(t, held.Close())
	if !hungUp(fd) {
		t.Error("the link goes on although nobody holds it")
	}
}
