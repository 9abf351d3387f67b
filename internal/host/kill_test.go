//go:build unix

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A host that is killed leaves neither its driver nor a socket, and a call under
// way may clean up.
func TestKilledHostTakesItsDriverAlong(t *testing.T) {
	for _, test := range []struct {
		name    string
		command func(mark string) string
		marked  bool
	}{
		{"idle", func(string) string { return "" }, false},
		{"in a call", func(mark string) string { return " clean " + mark }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := driversDir(t, "good")
			mark := filepath.Join(dir, "mark")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			runtimeDir, err := os.MkdirTemp("/tmp", "sbhost")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(runtimeDir)
			host := exec.Command(self)
			host.Env = append(os.Environ(), hostRole+"="+dir+test.command(mark), "XDG_RUNTIME_DIR="+runtimeDir)
			host.Stderr = os.Stderr
			output, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			words, readErr := readWords(output)
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait()
			if readErr != nil || len(words) != 3 || words[0] != "running" {
				t.Fatalf("the host said %q %v", words, readErr)
			}
			pid, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			waitGone(t, pid, 30*time.Second)
			if _, err := os.Lstat(words[2]); !os.IsNotExist(err) {
				t.Errorf("the socket's directory is left: %v", err)
			}
			if _, err := os.Stat(mark); test.marked != (err == nil) {
				t.Errorf("clean-up: %v", err)
			}
		})
	}
}
