//go:build linux

package modaldouble

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"golang.org/x/sys/unix"
)

// guestInit is the first process of a guest. It mounts /proc, which only a member
// of the new PID namespace can, and only while the host's is there to be seen; it
// lets go of the host's root; it reaps orphans while it waits, and ends with
// everything in the namespace when its standard input closes, so that nothing
// survives a killed server.
const guestInit = `mount -t proc proc /proc && umount -l ` + hostRoot + ` && rmdir ` + hostRoot + ` &&
echo ready && exec 3<&0 && { cat <&3 >/dev/null & wait $!; }`

// guest is one sandbox's file system and process space.
type guest struct {
	root     string
	init     *exec.Cmd
	lifeline io.Closer
	cgroup   *cgroup

	// entering is held while a thread enters the guest, so that nobody enters
	// one whose namespaces are being let go of: that thread would stay outside.
	entering   sync.RWMutex
	closed     bool
	namespaces []namespace
}

// errGuestEnded is the answer to whoever comes after close.
var errGuestEnded = errors.New("the sandbox has ended")

type namespace struct {
	fd   int
	kind int
}

// newGuest makes a guest in dir, within limits. Its network has nothing but its
// own loopback.
func newGuest(dir string, limits *pb.Resources) (*guest, error) {
	for _, sub := range []string{"tmp", "root", "home", "var/tmp", "run", "workspace"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	for _, sub := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(dir, sub), 0o1777); err != nil {
			return nil, err
		}
	}
	group, err := newCgroup("modaldouble-"+filepath.Base(dir), limits)
	if err != nil {
		return nil, err
	}
	g := &guest{root: dir, cgroup: group}
	if err := g.isolate(); err != nil {
		g.cgroup.remove()
		return nil, fmt.Errorf("isolate the guest in %s: %w", dir, err)
	}
	return g, nil
}

// isolate builds the root file system in a new mount namespace on a thread of
// its own, starts the init there, and keeps hold of the namespaces.
func (g *guest) isolate() error {
	const flags = unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET
	result := make(chan error, 1)
	go func() {
		// Never unlocked: a thread with foreign namespaces must not go back to
		// the scheduler, and ends with this goroutine.
		runtime.LockOSThread()
		if err := buildRoot(g.root); err != nil {
			result <- err
			return
		}
		result <- g.startInit(flags)
	}()
	if err := <-result; err != nil {
		return err
	}
	if err := g.openNamespaces(); err != nil {
		g.close()
		return err
	}
	return g.run(raiseLoopback)
}

func (g *guest) startInit(flags uintptr) error {
	g.init = &exec.Cmd{
		Path:        "/bin/sh",
		Args:        []string{"init", "-c", guestInit},
		Env:         []string{"PATH=" + guestPath},
		Dir:         "/",
		Stderr:      os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: flags, Setsid: true},
	}
	lifeline, err := g.init.StdinPipe()
	if err != nil {
		return err
	}
	g.lifeline = lifeline
	ready, err := g.init.StdoutPipe()
	if err != nil {
		return err
	}
	if err := g.init.Start(); err != nil {
		return fmt.Errorf("start the guest's init: %w", err)
	}
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		return errors.Join(fmt.Errorf("the guest's init did not get ready: %w", err), g.init.Wait())
	}
	return nil
}

func (g *guest) openNamespaces() error {
	// The mount namespace comes last: after that one is entered, the thread sees
	// the guest's files.
	for _, ns := range []struct {
		name string
		kind int
	}{{"net", unix.CLONE_NEWNET}, {"pid", unix.CLONE_NEWPID}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}} {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", g.init.Process.Pid, ns.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open the guest's %s namespace: %w", ns.name, err)
		}
		g.namespaces = append(g.namespaces, namespace{fd: fd, kind: ns.kind})
	}
	return nil
}

// run calls fn on a thread inside the guest: paths in fn are the guest's own, and
// processes that it starts belong to the guest.
func (g *guest) run(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // as in isolate
		if err := g.enter(); err != nil {
			result <- err
			return
		}
		result <- fn()
	}()
	return <-result
}

// enter moves the calling thread into the guest.
func (g *guest) enter() error {
	g.entering.RLock()
	defer g.entering.RUnlock()
	if g.closed {
		return errGuestEnded
	}
	if err := g.cgroup.join(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the server's file system view: %w", err)
	}
	for _, ns := range g.namespaces {
		if err := unix.Setns(ns.fd, ns.kind); err != nil {
			return fmt.Errorf("enter the guest: %w", err)
		}
	}
	return nil
}

// start starts a process inside the guest; it is to be called within run.
func (g *guest) start(cmd *exec.Cmd) error {
	if g.cgroup.leaf != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.cgroup.leaf.Fd())
	}
	return cmd.Start()
}

// close ends every process of the guest and forgets its namespaces. The
// directory stays.
func (g *guest) close() {
	if g.init != nil && g.init.Process != nil {
		_ = g.init.Process.Kill()
		_ = g.lifeline.Close()
		_ = g.init.Wait()
	}
	g.entering.Lock()
	defer g.entering.Unlock()
	g.closed = true
	for _, ns := range g.namespaces {
		_ = unix.Close(ns.fd)
	}
	g.namespaces = nil
	g.cgroup.remove()
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
