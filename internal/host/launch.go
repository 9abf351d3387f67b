package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	// stopLimit is how long a driver with calls under way may take to end. The SDK
	// gives them 1.5 seconds.
	stopLimit = 2 * time.Second
	// killLimit is how long a killed process may take to be gone. One that hangs in
	// the kernel must not hold up the user.
	killLimit = time.Second
	// crashLimit is how long after a lost connection the process's end may show.
	crashLimit = time.Second
)

// subprocess is a driver that this host started.
type subprocess struct {
	process  *process
	client   *goplugin.Client
	protocol *goplugin.GRPCClient
	hide     *redactor
	closing  sync.Once

	// socketDir is the directory that go-plugin made, with the lock that keeps other
	// hosts from sweeping it. It is empty until the process is about to start.
	socketDir string
	unlock    func()
}

// launch starts a driver's process and connects to it.
func (h *Host) launch(ctx context.Context, found Found, hide *redactor) (*subprocess, *plugin.Client, error) {
	base, err := h.socketBase()
	if err != nil {
		return nil, nil, errNoSocketDir(found, err)
	}
	sweep(base)
	env := h.environ.forDriver()
	if h.debugLog != nil {
		env = append(env, plugin.LogEnv+"=debug")
	}
	process, err := newProcess(found.Path, env)
	if err != nil {
		return nil, nil, errSystem(found, err)
	}
	sub := &subprocess{process: process, hide: hide, unlock: func() {}}
	sub.client = goplugin.NewClient(h.clientConfig(sub, base))

	limited, release := context.WithTimeout(ctx, h.startLimit)
	defer release()
	if err := sub.handshake(limited); err != nil {
		ended := sub.discard()
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case limited.Err() != nil || !ended:
			return nil, nil, h.explainSlow(found, sub)
		}
		return nil, nil, explainStart(found, sub, err)
	}
	raw, err := sub.protocol.Dispense(plugin.ServiceName)
	if err != nil {
		sub.close(false)
		return nil, nil, errNotADriver(found, err.Error(), err)
	}
	return sub, raw.(*plugin.Client), nil
}

// clientConfig is a fresh one for each start: go-plugin cannot use one twice.
func (h *Host) clientConfig(sub *subprocess, base string) *goplugin.ClientConfig {
	logger := h.logger(sub.hide)
	config := &goplugin.ClientConfig{
		HandshakeConfig:  plugin.Handshake(),
		VersionedPlugins: plugin.HostServices(),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		SkipHostEnv:      true,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: base},
		// TLS costs 20 ms and adds nothing to a socket in a private directory: who can
		// open it can also trace the process. On Windows it is a TCP port.
		AutoMTLS: h.goos == "windows",
		// Our own limit decides, since go-plugin's start does not end with a context.
		StartTimeout: 2 * h.startLimit,
		Logger:       logger,
		SyncStderr:   &sub.process.tail,
	}
	if h.debugLog != nil {
		config.SyncStdout = strayOutput(logger, "stdout")
		config.SyncStderr = strayOutput(logger, "stderr")
	}
	config.RunnerFunc = func(_ hclog.Logger, spec *exec.Cmd, socketDir string) (runner.Runner, error) {
		sub.socketDir = socketDir
		if unlock, ok := lockDirectory(socketDir); ok {
			sub.unlock = unlock
		}
		sub.process.cmd.Env = append(sub.process.cmd.Env, spec.Env...)
		return sub.process, nil
	}
	return config
}

// handshake starts the process and waits until it can be called, or until the
// context ends, which kills it.
func (s *subprocess) handshake(ctx context.Context) error {
	connected := make(chan error, 1)
	go func() { connected <- s.connect() }()
	select {
	case err := <-connected:
		return err
	case <-ctx.Done():
		_ = s.process.Kill(ctx)
		s.process.cutPipes(killLimit)
		<-connected
		return context.Cause(ctx)
	}
}

// connect survives go-plugin, which panics over a handshake with a certificate that
// it did not ask for.
func (s *subprocess) connect() (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("go-plugin panicked: %v", cause)
		}
	}()
	protocol, err := s.client.Client()
	if err != nil {
		return err
	}
	s.protocol = protocol.(*goplugin.GRPCClient)
	return nil
}

func (s *subprocess) crash(lost *plugin.ConnectionError) *CrashError {
	if !s.process.ended(crashLimit) {
		return nil
	}
	s.process.settle()
	headline, lines := s.process.tail.report(s.hide)
	return &CrashError{
		During: lost.Call, ExitStatus: s.process.exitStatus(), Panic: headline, LastLines: lines, Cause: lost,
	}
}

func (s *subprocess) pid() int { return s.process.cmd.Process.Pid }

func (s *subprocess) close(busy bool) { s.closing.Do(func() { s.stop(busy) }) }

// stop does not use go-plugin's Kill to end the process: that waits for an orderly
// end that nobody needs when no call is under way.
func (s *subprocess) stop(busy bool) {
	defer func() {
		if s.socketDir != "" {
			_ = os.RemoveAll(s.socketDir)
		}
		s.unlock()
	}()
	if s.process.ID() == "" {
		return
	}
	if busy {
		if !s.process.terminate() {
			s.disconnect()
		}
		s.process.ended(stopLimit)
	}
	_ = s.process.Kill(context.Background())
	s.disconnect()
	if !s.process.ended(killLimit) {
		return
	}
	s.process.cutPipes(0)
	// With process and connection gone this only waits for go-plugin's goroutines.
	s.client.Kill()
}

// discard ends a driver that did not come up, after all that it wrote was read. It
// reports whether the process is gone.
func (s *subprocess) discard() (ended bool) {
	ended = true
	if s.process.ID() != "" {
		_ = s.process.Kill(context.Background())
		if ended = s.process.ended(killLimit); ended {
			s.process.settle()
		}
	}
	s.close(false)
	return ended
}

func (s *subprocess) disconnect() {
	if s.protocol != nil {
		_ = s.protocol.Conn.Close()
	}
}
