package guest

import (
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// endOfInput is what a terminal takes for the end of its input.
const endOfInput = 0x04

// terminal is a pseudoterminal of the guest's own kernel, which therefore has job
// control, and the copying between it and the driver's pipes.
type terminal struct {
	master, replica *os.File
	// stop ends the copying of output once it has run dry.
	stopRead, stopWrite *os.File
	copied              chan struct{}
}

func openTerminal(size Size, who account) (*terminal, error) {
	master, replica, err := pty.Open()
	if err != nil {
		return nil, err
	}
	stopRead, stopWrite, err := os.Pipe()
	if err != nil {
		_, _ = master.Close(), replica.Close()
		return nil, err
	}
	t := &terminal{master: master, replica: replica, stopRead: stopRead, stopWrite: stopWrite, copied: make(chan struct{})}
	if size.Rows != 0 && size.Cols != 0 {
		t.resize(size)
	}
	// A command under another user opens its terminal again by name.
	_ = replica.Chown(int(who.credential.Uid), -1)
	return t, nil
}

func (t *terminal) close() {
	for _, file := range []*os.File{t.master, t.replica, t.stopRead, t.stopWrite} {
		_ = file.Close()
	}
}

// resize sets the size; the guest's kernel tells the foreground processes. A terminal
// that is being closed has no size to set.
func (t *terminal) resize(size Size) {
	_ = pty.Setsize(t.master, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
}

func (t *terminal) run() {
	_ = t.replica.Close()
	go t.copyInput()
	go func() {
		defer close(t.copied)
		t.copyOutput()
	}()
}

// copyInput ends with the process: it may wait for input that never comes.
func (t *terminal) copyInput() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := unix.Read(0, buffer)
		if n > 0 {
			if _, err := t.master.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 {
			_, _ = t.master.Write([]byte{endOfInput})
			return
		}
	}
}

// finish hangs up on what is left in the foreground, as the kernel does when a
// terminal goes away, and waits for the last output.
func (t *terminal) finish() {
	if group, err := unix.IoctlGetInt(int(t.master.Fd()), unix.TIOCGPGRP); err == nil && group > 1 {
		_ = unix.Kill(-group, unix.SIGHUP)
	}
	_ = t.stopWrite.Close()
	<-t.copied
}

// copyOutput copies until the terminal is hung up or, after finish, has run dry:
// a background process may keep the terminal open for ever.
func (t *terminal) copyOutput() {
	const lastOutput = 1 << 20
	buffer := make([]byte, 32<<10)
	master, stop := int32(t.master.Fd()), int32(t.stopRead.Fd())
	for left := lastOutput; left > 0; {
		ready := []unix.PollFd{{Fd: master, Events: unix.POLLIN}, {Fd: stop, Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return
		}
		stopping := ready[1].Revents != 0
		if ready[0].Revents == 0 {
			return
		}
		n, err := unix.Read(int(master), buffer)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return
		}
		if _, err := os.Stdout.Write(buffer[:n]); err != nil {
			return
		}
		if stopping {
			left -= n
		}
	}
}
