//go:build unix

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestReattachLeavesTheDriverRunning(t *testing.T) {
	dir := driversDir(t, "debugged")
	server := exec.Command(filepath.Join(dir, binaryPrefix+"debugged"))
	sockets, err := os.MkdirTemp("/tmp", "sbhost")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	server.Env = []string{"TMPDIR=" + sockets}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		// The test's own process: it has to be ended by somebody.
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	words, err := readWords(output)
	if err != nil || len(words) != 1 {
		t.Fatalf("%q %v", words, err)
	}
	variable := strings.ReplaceAll(words[0], "'", "")
	h := newHost(t, func(o *Options) { o.Environ = append(o.Environ, variable) })
	for range 2 {
		driver := start(t, h, "debugged")
		if _, err := driver.List(t.Context(), plugin.ListRequest{}); err != nil {
			t.Error(err)
		}
		if driver.Source != SourceReattach || driver.PID() != 0 {
			t.Errorf("got %+v", driver)
		}
		driver.Close()
		if !alive(server.Process.Pid) {
			t.Fatal("Close ended a process that it did not start")
		}
	}
}

func TestReattachThatCannotBe(t *testing.T) {
	for value, want := range map[string]string{
		`{"x":{"network":"unix","address":"/no/such.sock","protocol_version":1}}`: "does not answer at /no/such.sock",
		`{"x":{"network":"unix","address":"/no/such.sock","protocol_version":7}}`: "speaks protocol 7",
		`{"x":{"network":"pipe","address":"a","protocol_version":1}}`:             `names the network "pipe"`,
		`{"x":{"network":"tcp","protocol_version":1}}`:                            "names no address",
		`nonsense`: plugin.ReattachEnv,
	} {
		h := newHost(t, func(o *Options) { o.Environ = append(o.Environ, plugin.ReattachEnv+"="+value) })
		if _, err := h.Start(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", value, err)
		}
	}
}
