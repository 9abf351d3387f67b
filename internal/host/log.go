package host

import (
	"io"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// logger returns what go-plugin logs to: the driver's stderr lines and its own.
func (h *Host) logger(hide *redactor) hclog.Logger {
	if h.debugLog == nil {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: "driver", Level: hclog.Debug, Output: hide.writer(h.debugLog), Exclude: isOurEnd})
}

// isOurEnd knows go-plugin's complaints about how this package ends drivers.
func isOurEnd(_ hclog.Level, message string, _ ...any) bool {
	return message == "plugin failed to exit gracefully" || message == "error closing client during Kill"
}

// sharedWriter makes the lines of several drivers' logs follow one another.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(line)
}

// strayOutput takes what a driver prints after the handshake, which reaches no user:
// results go through calls.
func strayOutput(logger hclog.Logger, channel string) io.Writer {
	return logger.Named(channel).StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})
}
