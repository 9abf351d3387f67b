package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
)

const (
	// pipeSize is what the kernel is asked for: fewer switches between guest and host
	// for commands that print a lot. It is the default limit for ordinary users.
	pipeSize = 1 << 20
	// copyBuffer is how much is read at once, and the largest chunk on the wire.
	copyBuffer = 256 << 10
	// replyLimit bounds what a hostile guest can make the driver read as replies.
	replyLimit = 1 << 20
	// complaintLimit bounds what is kept of runsc's stderr.
	complaintLimit = 4 << 10
)

// call is the helper at work in a sandbox, and the driver's ends of its pipes.
type call struct {
	runsc *exec.Cmd
	// complaint is what runsc itself said. The guest cannot write to it.
	complaint *limitedBuffer
	control   *os.File
	stdin     *os.File
	stdout    *output
	stderr    *output
	// replies is closed when the helper is gone.
	replies chan guest.Reply
	// parts are the pipe ends that close has to close.
	parts []*os.File
}

// startCall starts the helper with a request. Without wantStdin, its stdin is empty.
func (s sandbox) startCall(request *guest.Request, wantStdin bool) (started *call, err error) {
	c := &call{replies: make(chan guest.Reply, 4), complaint: &limitedBuffer{left: complaintLimit}}
	var theirs []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(c.parts)
		}
	}()
	var replies, stdout, stderr *os.File
	for _, pipe := range []struct {
		ours    **os.File
		toGuest bool
	}{{&c.stdin, true}, {&stdout, false}, {&stderr, false}, {&c.control, true}, {&replies, false}} {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ours, their := read, write
		if pipe.toGuest {
			ours, their = write, read
		}
		*pipe.ours = ours
		c.parts, theirs = append(c.parts, ours), append(theirs, their)
	}
	for _, data := range []*os.File{c.stdin, stdout, stderr, c.control} {
		// Refused to users with many pipes; then it is only slower.
		_ = withFD(data, func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize)
			return err
		})
	}
	if !wantStdin {
		_ = c.stdin.Close()
	}
	c.stdout, c.stderr = &output{file: stdout}, &output{file: stderr}

	// The guest's descriptors 0 to 4 are the first five that runsc inherits. Its own
	// stderr is not the guest's, so that its errors are told from the command's output.
	command := []string{"exec"}
	for fd := range theirs {
		command = append(command, fmt.Sprintf("-pass-fd=%d:%d", 3+fd, fd))
	}
	c.runsc = s.runsc(nil, append(command, s.id, guest.Path, guest.ModeCall, guest.Version)...)
	c.runsc.ExtraFiles = theirs
	c.runsc.Stderr = c.complaint
	// runsc only waits for the helper, which sees for itself when the driver is gone.
	c.runsc.SysProcAttr.Pdeathsig = syscall.SIGKILL
	c.runsc.WaitDelay = time.Second
	if err := c.runsc.Start(); err != nil {
		return nil, err
	}
	go c.receive(replies)
	if err := c.send(request); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// withFD uses a file's descriptor without making the file a blocking one, as Fd would.
func withFD(file *os.File, use func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var used error
	if err := raw.Control(func(fd uintptr) { used = use(int(fd)) }); err != nil {
		return err
	}
	return used
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

// receive ends when the reply pipe does, which close sees to.
func (c *call) receive(replies *os.File) {
	defer close(c.replies)
	decoder := json.NewDecoder(io.LimitReader(replies, replyLimit))
	for {
		var reply guest.Reply
		if decoder.Decode(&reply) != nil {
			return
		}
		c.replies <- reply
	}
}

// send tells the helper something. A helper that does not listen is not waited for.
func (c *call) send(message any) error {
	const patience = 10 * time.Second
	_ = c.control.SetWriteDeadline(time.Now().Add(patience))
	return json.NewEncoder(c.control).Encode(message)
}

// giveUp makes the helper undo what it is doing: it sees the pipe's end.
func (c *call) giveUp() { _ = c.control.Close() }

// close ends the call. A helper that is still at work undoes it.
func (c *call) close() {
	c.giveUp()
	_ = c.runsc.Process.Kill()
	_ = c.runsc.Wait()
	closeAll(c.parts)
	for range c.replies {
		// What was not asked for any more.
	}
	for _, copying := range []*output{c.stdout, c.stderr} {
		if copying.done != nil {
			<-copying.done
		}
	}
}

// finishOutput returns when all that the guest has written so far was passed on.
func (c *call) finishOutput() error {
	return errors.Join(c.stdout.finish(), c.stderr.finish())
}

// failed returns why a call ended without a result, as far as runsc knew.
func (c *call) failed() string {
	if text := strings.TrimSpace(c.complaint.String()); text != "" {
		return text
	}
	return "its helper was killed in the guest"
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct {
	strings.Builder
	left int
}

func (b *limitedBuffer) Write(data []byte) (int, error) {
	kept := data[:min(len(data), b.left)]
	b.left -= len(kept)
	_, _ = b.Builder.Write(kept)
	return len(data), nil
}
