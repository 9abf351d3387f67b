package guest

import (
	"encoding/json"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Main runs the helper and does not return.
func Main() {
	args := os.Args[1:]
	switch {
	case len(args) == 1 && args[0] == ModeInit:
		reapForever()
	case len(args) == 3 && args[0] == ModeInit:
		prepareWorkdir(args[1], args[2])
		reapForever()
	case len(args) == 2 && args[0] == ModeCall:
		call(args[1])
		os.Exit(0)
	case len(args) == 3 && args[0] == ModeLimit:
		if err := limitProcesses(args[1], args[2]); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	_, _ = io.WriteString(os.Stderr, "This helper is started by sandboxctl's local driver and is of no use alone.\n")
	os.Exit(2)
}

// reapForever is the first process of a sandbox: it keeps the sandbox alive and
// collects processes whose parents are gone.
func reapForever() {
	handedOver := make(chan os.Signal, 1)
	signal.Notify(handedOver, unix.SIGCHLD)
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			<-handedOver
		}
	}
}

// conversation is the helper's side of the two pipes.
type conversation struct {
	control *json.Decoder
	replies *json.Encoder
}

// call answers one request of a driver of the given version.
func call(version string) {
	// Nothing that the helper starts may hold the driver's pipes.
	unix.CloseOnExec(ControlFD)
	unix.CloseOnExec(ReplyFD)
	talk := &conversation{
		control: json.NewDecoder(os.NewFile(ControlFD, "control")),
		replies: json.NewEncoder(os.NewFile(ReplyFD, "replies")),
	}
	if version != Version {
		talk.fail(&Error{Reason: ReasonRequest, Message: "the sandbox was made by another version of the local driver; make a new one"})
		return
	}
	var request Request
	if err := talk.control.Decode(&request); err != nil {
		talk.fail(&Error{Reason: ReasonRequest, Message: "the request could not be read: " + err.Error()})
		return
	}
	switch {
	case request.Exec != nil:
		talk.exec(request.Exec)
	case request.File != nil:
		talk.file(request.File)
	default:
		talk.fail(&Error{Reason: ReasonRequest, Message: "the request names nothing to do"})
	}
}

// reply tells the driver; one that is gone cannot be told, and the end of the control
// pipe will say so.
func (c *conversation) reply(reply Reply) { _ = c.replies.Encode(reply) }

func (c *conversation) fail(err *Error) { c.reply(Reply{Error: err}) }

// next returns what the driver says next, and false when it says no more.
func (c *conversation) next() (Control, bool) {
	var control Control
	err := c.control.Decode(&control)
	return control, err == nil
}
