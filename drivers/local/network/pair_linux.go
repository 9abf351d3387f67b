package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// linkBuffer is how many bytes each end of the link should hold. An ordinary user gets
// what the system's default or maximum is, if that is less.
const linkBuffer = 4 << 20

// Pair returns the two ends of a link: ours for Config.Link, and the guest's. Each
// message on it is one IP packet without any header in front.
func Pair() (ours, guests *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("the sandbox's link cannot be made: %w", err)
	}
	for _, fd := range fds {
		enlarge(fd)
	}
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "guest's link"), nil
}

// enlarge gives a socket the largest buffer that it may have. What is in flight is
// counted at the sending end.
func enlarge(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, linkBuffer) != nil {
		// The kernel silently takes its maximum instead.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, linkBuffer)
	}
}

// Hold returns a file that keeps our end of a link open as long as somebody has that
// file open. Who has the guest's end should have it too: gVisor takes the end of a link
// that is carrying something for empty packets, and reads those without a rest.
//
// The file is a socket that listens under no name any more. A connection waits there that
// nobody can accept, and our end is under way on it: so the guest, whose file this is,
// cannot get at it.
//
// The directory must be writable, and nobody else's.
func Hold(ours *os.File, dir string) (held *os.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the sandbox's link cannot be held: %w", err)
		}
	}()
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	held = os.NewFile(uintptr(listener), "held link")
	if err := hold(listener, int(ours.Fd()), dir); err != nil {
		_ = held.Close()
		return nil, err
	}
	return held, nil
}

func hold(listener, ours int, dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	// The path of a socket may have 107 bytes, that of a state directory has no limit.
	name := &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/held.sock", folder.Fd())}
	if err := unix.Bind(listener, name); err != nil {
		return err
	}
	defer os.Remove(name.Name)
	if err := unix.Listen(listener, 1); err != nil {
		return err
	}
	sender, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sender)
	if err := unix.Connect(sender, name); err != nil {
		return err
	}
	return unix.Sendmsg(sender, []byte{0}, unix.UnixRights(ours), nil, 0)
}
