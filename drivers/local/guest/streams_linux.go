package guest

import "golang.org/x/sys/unix"

// streams is what a command reads and writes: the driver's pipes themselves, so that
// nothing is copied on the way, or a terminal that this process copies from and to.
type streams struct {
	child    []uintptr
	terminal *terminal
}

func openStreams(request *Exec, who account) (*streams, *Error) {
	if !request.TTY {
		return &streams{child: []uintptr{0, 1, 2}}, nil
	}
	terminal, err := openTerminal(Size{Rows: request.Rows, Cols: request.Cols}, who)
	if err != nil {
		return nil, &Error{Reason: ReasonOther, Message: "the sandbox gave no terminal: " + err.Error()}
	}
	fd := terminal.replica.Fd()
	return &streams{child: []uintptr{fd, fd, fd}, terminal: terminal}, nil
}

// abandon lets go of streams whose command did not start.
func (s *streams) abandon() {
	if s.terminal != nil {
		s.terminal.close()
	}
}

func (s *streams) run() {
	if s.terminal != nil {
		s.terminal.run()
		return
	}
	// The command holds the pipes now. With its own copies closed, the helper does
	// not keep a pipe open that the command closes.
	for fd := range 3 {
		_ = unix.Close(fd)
	}
}

// finish returns when the command's last output is on its way.
func (s *streams) finish() {
	if s.terminal != nil {
		s.terminal.finish()
	}
}

func (s *streams) resize(size Size) {
	if s.terminal != nil {
		s.terminal.resize(size)
	}
}
