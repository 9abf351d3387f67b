//go:build linux

package cli_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestDetachedHoldsNothing makes a sandbox, whose processes go on, with an inherited
// descriptor besides the usual three, as a shell's lock or an event loop's pipe is. All
// that belongs to the caller has to be free as soon as the command has ended.
func TestDetachedHoldsNothing(t *testing.T) {
	programs := buildPlaces(t, module+"/drivers/local/cmd/sandboxctl-driver-local", module+"/drivers/local/cmd/sandboxctl-guest")
	p := newLocalPlace(t, programs)
	for _, command := range [][]string{
		{"create", "--name", "kept", "--network", "open"},
		{"renew", "kept", "--ttl", "2h"},
		{"exec", "kept", "--", "sh", "-c", "sleep 54321 >/dev/null 2>&1 &"},
		{"create", "--name", "unkept", "--ttl", "0"},
	} {
		program := filepath.Join(p.dir, "sandboxctl")
		run := exec.Command(program, command...)
		run.Env = p.env
		var ends []*os.File
		for _, theirs := range []func(*os.File){
			func(f *os.File) { run.Stdout = f }, func(f *os.File) { run.Stderr = f },
			func(f *os.File) { run.ExtraFiles = []*os.File{f, f, f} },
		} {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			defer write.Close()
			theirs(write)
			ends = append(ends, read, write)
		}
		if err := run.Run(); err != nil {
			t.Fatalf("%q: %v", command, err)
		}
		for i := 0; i < len(ends); i += 2 {
			_ = ends[i+1].Close()
			_ = ends[i].SetReadDeadline(time.Now().Add(2 * time.Second))
			if _, err := io.Copy(io.Discard, ends[i]); err != nil {
				t.Errorf("after %q pipe %d is still held: %v", command, i/2+1, err)
			}
		}
	}
	p.must("rm", "kept", "unkept")
	if left := p.check(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
