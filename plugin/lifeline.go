package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/stats"
)

// A host that is killed cannot stop its driver, and go-plugin leaves it running
// for ever (go-plugin issue 210). The driver therefore stops by itself when the
// host's last connection closes, or when none is made.
const (
	firstConnectionLimit = 10 * time.Second
	reconnectLimit       = 500 * time.Millisecond
)

// lifeline ends the process's base context when the host is gone.
type lifeline struct {
	stop context.CancelFunc

	mu          sync.Mutex
	connections int
	timer       *time.Timer
}

func newLifeline(stop context.CancelFunc) *lifeline {
	line := &lifeline{stop: stop}
	line.timer = time.AfterFunc(firstConnectionLimit, stop)
	return line
}

func (l *lifeline) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (l *lifeline) HandleRPC(context.Context, stats.RPCStats) {}

func (l *lifeline) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (l *lifeline) HandleConn(_ context.Context, event stats.ConnStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch event.(type) {
	case *stats.ConnBegin:
		l.connections++
		l.timer.Stop()
	case *stats.ConnEnd:
		l.connections--
		if l.connections == 0 {
			l.timer.Reset(reconnectLimit)
		}
	}
}

// removeSocket deletes the process's socket and the host's directory for it, which
// nobody else does when the host was killed. The directory goes only when it holds
// nothing else.
func removeSocket(dir string) {
	if dir == "" || !filepath.IsAbs(dir) {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket != 0 && strings.HasPrefix(entry.Name(), "plugin") {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir)
}

// socketDir is where the host told go-plugin to put the socket.
func socketDir() string { return os.Getenv(goplugin.EnvUnixSocketDir) }
