package local

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// output is a pipe that the guest writes to. What holds the other end may be anything
// that the command started, so its end says nothing about the command's.
type output struct {
	file *os.File
	done chan struct{}
	err  error
}

// copyTo starts copying to a writer. When that cannot be written to, broken is called:
// what the guest writes has nowhere to go.
func (o *output) copyTo(to io.Writer, broken func()) {
	o.done = make(chan struct{})
	go func() {
		defer close(o.done)
		if o.err = o.copy(to); o.err != nil {
			broken()
		}
	}()
}

func (o *output) copy(to io.Writer) error {
	buffer := make([]byte, copyBuffer)
	for {
		n, err := o.file.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return o.copyRest(to)
		case err != nil:
			return err
		}
	}
}

// copyRest copies what is in the pipe now, which is all that a command that has ended
// has written, and not what others may go on writing.
func (o *output) copyRest(to io.Writer) error {
	var size int
	err := withFD(o.file, func(fd int) (err error) {
		size, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	if err != nil || size == 0 {
		return err
	}
	_ = o.file.SetReadDeadline(time.Time{})
	rest := make([]byte, size)
	n, err := io.ReadFull(o.file, rest)
	if err != nil {
		return err
	}
	_, err = to.Write(rest[:n])
	return err
}

// finish returns when all that was written so far has been copied.
func (o *output) finish() error {
	_ = o.file.SetReadDeadline(time.Now())
	<-o.done
	return o.err
}
