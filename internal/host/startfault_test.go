//go:build unix

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// wantStartError checks the reason, that the message is one sentence with these
// words and fit for a terminal, and that there is a hint.
func wantStartError(tb testing.TB, err error, reason StartReason, words ...string) *StartError {
	tb.Helper()
	var failed *StartError
	if !errors.As(err, &failed) {
		tb.Fatalf("want a StartError of %s, got %T: %v", reason, err, err)
	}
	if failed.Reason != reason {
		tb.Errorf("reason %s, want %s: %s", failed.Reason, reason, failed.Message)
	}
	for _, word := range words {
		if !strings.Contains(failed.Message, word) {
			tb.Errorf("%q does not say %q", failed.Message, word)
		}
	}
	if strings.ContainsAny(failed.Message, "\n\x1b") || failed.Hint == "" || len(failed.Message) > 600 {
		tb.Errorf("not one sentence with a hint: %q, %q", failed.Message, failed.Hint)
	}
	return failed
}

func TestStartFaults(t *testing.T) {
	for _, fault := range []struct {
		driver string
		reason StartReason
		words  []string
	}{
		{"noise", ReasonNoise, []string{"Hello", "from init!", "stdout"}},
		{"blank", ReasonNoise, []string{`""`}},
		{"silent", ReasonNotADriver, []string{"without a word"}},
		{"exits", ReasonExited, []string{"exit status 3", "no such"}},
		{"panics", ReasonPanic, []string{"panic: no table for panics"}},
		{"hangs", ReasonSlow, []string{"within 5s"}},
		{"newer", ReasonProtocol, []string{"speaks protocol 7", "this sandboxctl speaks 1"}},
		{"older", ReasonProtocol, []string{"speaks protocol 0"}},
		{"netrpc", ReasonNotADriver, []string{"netrpc"}},
		{"certificate", ReasonNotADriver, []string{"handshake"}},
		{"foreign", ReasonNotADriver, []string{"another program"}},
		{"stranger", ReasonNotADriver, []string{"questions"}},
		{"misnamed", ReasonWrongName, []string{`"other"`}},
		{"stuck", ReasonSlow, []string{"say who it is", "within 500ms"}},
		{"mute", ReasonExited, []string{"stdout"}},
	} {
		t.Run(fault.driver, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, nil, fault.driver)
			h.startLimit, h.infoLimit = time.Minute, time.Minute
			switch fault.driver {
			case "hangs":
				h.startLimit = 5 * time.Second
			case "stuck":
				h.infoLimit = 500 * time.Millisecond
			}
			driver, err := h.Start(t.Context(), fault.driver)
			if err == nil {
				driver.Close()
			}
			failed := wantStartError(t, err, fault.reason, append(fault.words, failedPath(h, fault.driver))...)
			switch fault.driver {
			case "newer":
				if failed.Hint != "upgrade sandboxctl" {
					t.Errorf("hint %q", failed.Hint)
				}
			case "older":
				if failed.Hint != "upgrade driver older" {
					t.Errorf("hint %q", failed.Hint)
				}
			case "hangs":
				if len(failed.LastLines) != 1 || failed.LastLines[0] != "waiting for the licence server" {
					t.Errorf("last lines %q", failed.LastLines)
				}
			case "exits":
				if len(failed.LastLines) != 2 || failed.LastLines[1] != "no such \uFFFD[31mregion" {
					t.Errorf("last lines %q", failed.LastLines)
				}
			}
		})
	}
}

func failedPath(h *Host, name string) string { return h.options.Drivers[name].Path }

func TestFilesThatAreNoPrograms(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, file := range []struct {
		path   string
		reason StartReason
	}{
		{filepath.Join(dir, "absent"), ReasonMissing},
		{write("plain", "text", 0o644), ReasonNotExecutable},
		{write("arch", "\x7fELF\x02\x01\x01"+strings.Repeat("\x00", 100), 0o755), ReasonWrongPlatform},
		{write("script", "#!/no/such/interpreter\n", 0o755), ReasonWrongPlatform},
		{write("shell", "#!/bin/sh\necho usage: shell FILE\n", 0o755), ReasonNoise},
		{write("true", "#!/bin/sh\n", 0o755), ReasonNotADriver},
		{write("open", "#!/bin/sh\n", 0o757), ReasonUntrusted},
	} {
		t.Run(filepath.Base(file.path), func(t *testing.T) {
			h := newHost(t, func(o *Options) { o.Drivers["x"] = DriverConfig{Path: file.path} })
			_, err := h.Start(t.Context(), "x")
			wantStartError(t, err, file.reason, file.path)
		})
	}
}
