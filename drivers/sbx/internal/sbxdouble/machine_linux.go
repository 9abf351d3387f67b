package sbxdouble

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A machine holds machineLock in its sandbox's directory for as long as it
// lives; that, and not a stored status, is what "running" means.
const (
	machineLock   = "machine.lock"
	machinePID    = "machine.pid"
	machineSocket = "machine.sock"
	bootedOnce    = "booted"
)

// The descriptors that a machine inherits.
const (
	lockFD    = 3 // closed when the last process that has it, the machine, ends
	readyFD   = 4
	hostNetFD = 5 // the network namespace in which the proxy dials
)

// boot starts the machine of a sandbox unless it runs; it says whether it did.
func (a *app) boot(box *sandbox) (bool, error) {
	dir := a.store.sandboxDir(box.Name)
	serial, err := os.OpenFile(filepath.Join(dir, "boot.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer serial.Close()
	if err := unix.Flock(int(serial.Fd()), unix.LOCK_EX); err != nil {
		return false, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, machineLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(dir, bootedOnce)); err == nil && !a.config.unknowns().RulesSurviveStop {
		if err := a.changePolicy(func(p *policyState) error { p.dropScoped(box.Name, true); return nil }); err != nil {
			return false, err
		}
	}
	if err := a.launch(dir, box.CPUs, lock); err != nil {
		return false, err
	}
	return true, os.WriteFile(filepath.Join(dir, bootedOnce), nil, 0o600)
}

// launch starts the first process of a machine in its own namespaces and waits until it serves.
func (a *app) launch(dir string, cpus int, lock *os.File) error {
	cmd, err := self(guestCommand, dir)
	if err != nil {
		return err
	}
	readyReader, readyWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	defer readyReader.Close()
	log, err := os.OpenFile(filepath.Join(dir, "machine.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		readyWriter.Close()
		return err
	}
	defer log.Close()
	hostNet, err := os.Open("/proc/self/ns/net")
	if err != nil {
		readyWriter.Close()
		return err
	}
	defer hostNet.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock, readyWriter, hostNet}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	err = startOn(cpus, cmd)
	readyWriter.Close()
	if err != nil {
		return fmt.Errorf("sbxdouble: cannot make namespaces (run as root, or allow unprivileged user namespaces): %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, machinePID), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	answer, err := io.ReadAll(readyReader)
	if err != nil || string(answer) != "ready" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, _ := os.ReadFile(filepath.Join(dir, "machine.log"))
		return fmt.Errorf("sbxdouble: the machine did not start: %s", strings.TrimSpace(string(text)))
	}
	return cmd.Process.Release()
}

// startOn starts a process on as many CPUs as the sandbox has; zero is all. It gets
// the CPUs of the thread that starts it.
func startOn(cpus int, cmd *exec.Cmd) error {
	if cpus == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; some.Count() < cpus && cpu < len(all)*64; cpu++ {
		if all.IsSet(cpu) {
			some.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &all)
	return cmd.Start()
}

func (a *app) running(name string) bool {
	lock, err := os.Open(filepath.Join(a.store.sandboxDir(name), machineLock))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// halt kills a machine with everything in it and returns when it is gone.
func (a *app) halt(name string) {
	dir := a.store.sandboxDir(name)
	if !a.running(name) {
		return
	}
	text, err := os.ReadFile(filepath.Join(dir, machinePID))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	lock, err := os.Open(filepath.Join(dir, machineLock))
	if err != nil {
		return
	}
	defer lock.Close()
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_SH)
}

// dial connects to a machine. The path goes through a descriptor because a
// socket's path may not be longer than about a hundred bytes.
func (a *app) dial(name string) (net.Conn, error) {
	dir, err := os.Open(a.store.sandboxDir(name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), machineSocket))
}

// rawTerminal prepares our terminal for a guest's and keeps the sizes equal.
func rawTerminal(out *frames, request *execRequest) (func(), error) {
	fd := int(os.Stdin.Fd())
	size := func() [2]uint16 {
		cols, rows, err := term.GetSize(fd)
		if err != nil {
			return [2]uint16{24, 80}
		}
		return [2]uint16{uint16(rows), uint16(cols)}
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	request.Size = size()
	request.Env = append(request.Env, "TERM=xterm-256color")
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		for range changes {
			_ = out.writeJSON(frameResize, size())
		}
	}()
	return func() {
		signal.Stop(changes)
		close(changes)
		_ = term.Restore(fd, state)
	}, nil
}
