package local

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// runsc returns runsc, which is this program under another name, with a command for
// a sandbox. It is to be started by the caller.
//
// It runs in the directory of its own state, since the path of a socket in there may
// have 107 bytes and that of a user's state directory has no limit.
func (s sandbox) runsc(options []string, command ...string) *exec.Cmd {
	args := append([]string{"runsc", "--root=."}, options...)
	return &exec.Cmd{
		Path: "/proc/self/exe",
		Args: append(args, command...),
		Dir:  s.runscRoot(),
		// What runsc needs is in its arguments; what it had of the environment, its
		// children would have, too.
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		// A session of its own keeps a terminal's Ctrl-C from the sandbox.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// complaints returns what runsc said about a start that failed.
func (s sandbox) complaints() string {
	var messages []string
	content, err := os.ReadFile(s.logFile())
	if err != nil {
		return ""
	}
	for decoder := json.NewDecoder(bytes.NewReader(content)); ; {
		var entry struct {
			Message string `json:"msg"`
		}
		if decoder.Decode(&entry) != nil {
			break
		}
		messages = append(messages, entry.Message)
	}
	if crash, err := os.ReadFile(s.panicFile()); err == nil && len(crash) > 0 {
		first, _, _ := strings.Cut(string(crash), "\n")
		messages = append(messages, first)
	}
	return strings.Join(messages, "; ")
}
