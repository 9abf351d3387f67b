package guest

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit codes of commands that could not be started, as shells have them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// exec runs a command to its end, or to the driver's.
func (c *conversation) exec(request *Exec) {
	who, failure := findAccount(request.User)
	if failure != nil {
		c.fail(failure)
		return
	}
	if failure := enterWorkdir(string(request.Workdir)); failure != nil {
		c.fail(failure)
		return
	}
	// What the command leaves behind becomes a child of this process and not of the
	// sandbox's first one, so that a kill finds all of it, also what has left the
	// session. After a normal end this process goes and init takes over.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		c.fail(&Error{Reason: ReasonOther, Message: "the command cannot be supervised: " + err.Error()})
		return
	}
	streams, failure := openStreams(request, who)
	if failure != nil {
		c.fail(failure)
		return
	}
	argv, env := texts(request.Argv), environment(request, who)
	var pid int
	err := withProcesses(request.Processes, func() (err error) {
		pid, err = start(argv, env, who, streams)
		return err
	})
	if err != nil {
		streams.abandon()
		c.reply(Reply{Exit: &Exit{Code: complain(argv[0], err)}})
		return
	}
	c.reply(Reply{Started: true})
	streams.run()

	exited := make(chan unix.WaitStatus, 1)
	go func() { exited <- reapUntil(pid) }()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.obey(pid, streams)
	}()
	exit := awaitExit(exited, gone)
	streams.finish()
	// From here on orphans are init's. gVisor takes a process that dies at the same time
	// as its reaper, which has no parent, for the sandbox's first one, and ends the sandbox.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	c.reply(Reply{Exit: exit})
}

// awaitExit returns how the command ended, after killing it when the driver is gone.
func awaitExit(exited <-chan unix.WaitStatus, gone <-chan struct{}) *Exit {
	select {
	case status := <-exited:
		return exitOf(status)
	case <-gone:
	}
	select {
	case status := <-exited:
		// It was quicker than the driver.
		return exitOf(status)
	default:
	}
	killTree()
	exit := exitOf(<-exited)
	exit.Killed = true
	return exit
}

// obey carries out what the driver says until it says no more.
func (c *conversation) obey(pid int, streams *streams) {
	for {
		control, ok := c.next()
		if !ok {
			return
		}
		if control.Signal != 0 {
			// The command leads a group of its own. It may be gone already.
			_ = unix.Kill(-pid, unix.Signal(control.Signal))
		}
		if control.Resize != nil {
			streams.resize(*control.Resize)
		}
	}
}

func enterWorkdir(dir string) *Error {
	err := os.Chdir(dir)
	if err == nil {
		return nil
	}
	failure := pathError(dir, err)
	failure.Message = "the working directory " + failure.Message
	return failure
}

// environment completes what the driver gave with what depends on the guest's user.
func environment(request *Exec, who account) []string {
	env := texts(request.Env)
	defaults := []string{"HOME=" + who.home}
	if who.name != "" {
		defaults = append(defaults, "USER="+who.name)
	}
	if request.TTY {
		defaults = append(defaults, "TERM=xterm")
	}
	for _, entry := range defaults {
		name, _, _ := strings.Cut(entry, "=")
		if !slices.ContainsFunc(env, func(has string) bool { return strings.HasPrefix(has, name+"=") }) {
			env = append(env, entry)
		}
	}
	return env
}

func start(argv, env []string, who account, streams *streams) (pid int, err error) {
	file, err := findExecutable(argv[0], env)
	if err != nil {
		return 0, err
	}
	attributes := &syscall.SysProcAttr{Setsid: true, Credential: &who.credential}
	if streams.terminal != nil {
		attributes.Setctty = true
	}
	pid, err = syscall.ForkExec(file, argv, &syscall.ProcAttr{Env: env, Files: streams.child, Sys: attributes})
	return pid, err
}

// findExecutable looks a command up as execvp does, in the PATH that the command
// itself will see. A file that cannot be executed is remembered, as shells do, in
// case that nothing better follows.
func findExecutable(name string, env []string) (string, error) {
	if name == "" {
		return "", unix.ENOENT
	}
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	result := error(unix.ENOENT)
	for dir := range strings.SplitSeq(lookup(env, "PATH"), ":") {
		if dir == "" {
			dir = "."
		}
		file := path.Join(dir, name)
		if dir == "." {
			file = "./" + name
		}
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			result = err
		}
	}
	return "", result
}

func executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return unix.EACCES
	}
	return nil
}

func lookup(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if rest, ok := strings.CutPrefix(entry, name+"="); ok {
			value = rest
		}
	}
	return value
}

// complain tells the user why a command did not start, and returns its code.
func complain(name string, err error) int {
	code := codeNotExecutable
	if errors.Is(err, fs.ErrNotExist) {
		code = codeNotFound
	}
	reason := err.Error()
	var errno syscall.Errno
	switch {
	case code == codeNotFound && !strings.Contains(name, "/"):
		reason = "command not found"
	case code == codeNotFound:
		reason = "no such file, or its interpreter is missing"
	case errors.As(err, &errno) && errno == unix.ENAMETOOLONG && len(name) < unix.PathMax:
		// What gVisor says when one argument is longer than it takes.
		reason = unix.E2BIG.Error()
	case errors.As(err, &errno):
		reason = errno.Error()
	}
	_, _ = os.Stderr.WriteString("sandboxctl: " + name + ": " + reason + "\n")
	return code
}

func exitOf(status unix.WaitStatus) *Exit {
	if status.Signaled() {
		return &Exit{Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	}
	return &Exit{Code: status.ExitStatus()}
}

func texts(values [][]byte) []string {
	result := make([]string, len(values))
	for i, value := range values {
		result[i] = string(value)
	}
	return result
}
