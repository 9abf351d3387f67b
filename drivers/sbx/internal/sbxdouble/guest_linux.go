package sbxdouble

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// longestLife ends machines that a killed test run left behind.
const longestLife = 15 * time.Minute

// machine is the first process of a sandbox.
type machine struct {
	app   *app
	box   *sandbox
	procs *processes

	mu       sync.Mutex
	sessions int
	idle     *time.Timer
}

// guestMain is the program's life as PID 1 of a machine.
func guestMain(dir string) int {
	for fd := lockFD; fd <= hostNetFD; fd++ {
		unix.CloseOnExec(fd)
	}
	ready := os.NewFile(readyFD, "ready")
	m, listener, err := newMachine(dir, os.NewFile(hostNetFD, "net"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 70
	}
	time.AfterFunc(longestLife, func() { os.Exit(0) })
	if !m.app.config.KeepUnused {
		m.armIdle()
	}
	_, _ = ready.WriteString("ready")
	ready.Close()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return 0
		}
		go m.serve(conn)
	}
}

func newMachine(dir string, hostNet *os.File) (*machine, net.Listener, error) {
	config, err := loadConfig()
	if err != nil {
		return nil, nil, err
	}
	a := &app{config: config, store: store{dir: config.StateDir}}
	box, err := a.store.load(filepath.Base(dir))
	if err != nil {
		return nil, nil, err
	}
	if err := os.Chdir(dir); err != nil {
		return nil, nil, err
	}
	_ = os.Remove(machineSocket)
	listener, err := net.Listen("unix", machineSocket)
	if err != nil {
		return nil, nil, err
	}
	// The policy is read on every connection of the guest, after the host's
	// files are out of sight; a descriptor still reaches them.
	state, err := os.Open(config.StateDir)
	if err != nil {
		return nil, nil, err
	}
	p := &proxy{hostNet: hostNet}
	if err := loopbackUp(); err != nil {
		return nil, nil, fmt.Errorf("sbxdouble: loopback: %w", err)
	}
	// Only root may dial in the host's network; other guests reach nothing but the proxy's refusals.
	if mappedUsers() {
		if err := p.startUplink(); err != nil {
			return nil, nil, err
		}
	}
	if err := enterRoot(dir, config, box); err != nil {
		return nil, nil, err
	}
	a.store.dir = fmt.Sprintf("/proc/self/fd/%d", state.Fd())
	m := &machine{app: a, box: box, procs: newProcesses(box.Memory)}
	if err := m.startProxy(p); err != nil {
		return nil, nil, err
	}
	return m, listener, nil
}

// armIdle schedules the auto-stop; a session that begins disarms it.
func (m *machine) armIdle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = time.AfterFunc(m.app.config.IdleStop, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.sessions == 0 {
			os.Exit(0)
		}
	})
}

func (m *machine) beginSession() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions++
	if m.idle != nil {
		m.idle.Stop()
	}
}

func (m *machine) endSession() {
	m.mu.Lock()
	m.sessions--
	last := m.sessions == 0
	m.mu.Unlock()
	if last {
		m.armIdle()
	}
}

// serve runs one command for one client.
func (m *machine) serve(conn net.Conn) {
	defer conn.Close()
	kind, payload, err := readFrame(conn)
	if err != nil || kind != frameStart {
		return
	}
	m.beginSession()
	defer m.endSession()
	var request execRequest
	if err := json.Unmarshal(payload, &request); err != nil {
		return
	}
	out := &frames{out: conn}
	proc, err := m.start(request)
	if err != nil {
		// The error of a command that cannot start arrives on stdout.
		_ = out.write(frameStdout, []byte(err.Error()+"\n"))
		_ = out.writeJSON(frameExit, m.app.config.unknowns().NoExecutableExit)
		return
	}
	go m.feed(conn, proc, request.Copy || m.app.config.unknowns().StdinEOFReaches)
	code := m.relay(out, proc)
	proc.closeStdin()
	_ = out.writeJSON(frameExit, code)
}

// feed carries the client's bytes to the command. Whether the command's input ends when
// the client goes away is not known either.
func (m *machine) feed(conn net.Conn, proc *process, eofReaches bool) {
	sent := false
	for {
		kind, payload, err := readFrame(conn)
		if err != nil {
			if eofReaches {
				proc.closeStdin()
			}
			return
		}
		switch kind {
		case frameStdin:
			sent = true
			if _, err := proc.stdin.Write(payload); err != nil && !proc.tty {
				proc.closeStdin()
			}
		case frameStdinEOF:
			if !proc.tty && (!sent || eofReaches) {
				proc.closeStdin()
			}
		case frameResize:
			var size [2]uint16
			if json.Unmarshal(payload, &size) == nil {
				proc.resize(size)
			}
		}
	}
}

// relay copies a command's output until it has ended and returns its exit
// code. Output that background processes write later has no reader; it is
// drained so that they are not blocked.
func (m *machine) relay(out *frames, proc *process) int {
	var streams sync.WaitGroup
	ended := make(chan struct{})
	for _, stream := range proc.streams {
		streams.Add(1)
		go func() {
			drainStream(out, stream, ended, m.app.config.unknowns().BackgroundHoldsEnd, streams.Done)
		}()
	}
	status := <-proc.exited
	close(ended)
	for _, stream := range proc.streams {
		_ = stream.file.SetReadDeadline(time.Now())
	}
	streams.Wait()
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// drainStream sends a stream until its end, or until the command has ended and
// nothing is left to read; then it calls done and goes on reading for nobody.
func drainStream(out *frames, stream outputStream, ended <-chan struct{}, holds bool, done func()) {
	defer stream.file.Close()
	buffer := make([]byte, frameLimit)
	finished := false
	for {
		n, err := stream.file.Read(buffer)
		if n > 0 && !finished {
			_ = out.write(stream.kind, buffer[:n])
		}
		if err == nil {
			continue
		}
		if os.IsTimeout(err) && !finished {
			select {
			case <-ended:
			default:
				continue
			}
			if holds {
				_ = stream.file.SetReadDeadline(time.Time{})
				continue
			}
			// One short look for bytes that were written before the end.
			_ = stream.file.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			n, err := stream.file.Read(buffer)
			if n > 0 {
				_ = out.write(stream.kind, buffer[:n])
				_ = stream.file.SetReadDeadline(time.Now())
				continue
			}
			if os.IsTimeout(err) {
				finished = true
				done()
				_ = stream.file.SetReadDeadline(time.Time{})
				continue
			}
		}
		if !finished {
			done()
		}
		return
	}
}
