package plugin

import (
	"io"
	"log/slog"
	"os"
	"strings"
)

// newLogger writes log lines in hclog's JSON form, which go-plugin's host side
// takes apart again. Unless the host asks for more, only errors are written.
func newLogger(output io.Writer) *slog.Logger {
	level := slog.LevelError
	if wanted := os.Getenv(LogEnv); wanted != "" {
		_ = level.UnmarshalText([]byte(wanted))
	}
	return slog.New(slog.NewJSONHandler(output, &slog.HandlerOptions{Level: level, ReplaceAttr: hclogNames}))
}

func hclogNames(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return attr
	}
	switch attr.Key {
	case slog.TimeKey:
		return slog.String("@timestamp", attr.Value.Time().Format("2006-01-02T15:04:05.000000Z07:00"))
	case slog.LevelKey:
		return slog.String("@level", strings.ToLower(attr.Value.String()))
	case slog.MessageKey:
		attr.Key = "@message"
	}
	return attr
}
