package local_test

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// The benchmarks come in pairs: through the driver, and runsc by hand on the same
// sandbox or a bundle like it. Run them with
//
//	go test -run '^$' -bench . ./drivers/local

func BenchmarkExecTrue(b *testing.B) {
	f := startDriver(b, 0)
	ref := f.create()
	b.Run("driver", func(b *testing.B) {
		for b.Loop() {
			f.exec(ref, &plugin.ExecRequest{Argv: []string{"true"}})
		}
	})
	b.Run("runsc", func(b *testing.B) {
		for b.Loop() {
			runsc(b, f.runscRoot(ref), "exec", ref.ID, "true")
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	f := startDriver(b, 0)
	b.Run("driver", func(b *testing.B) {
		for b.Loop() {
			ref := f.create()
			b.StopTimer()
			_, _ = f.Destroy(f.ctx(), ref)
			b.StartTimer()
		}
	})
	b.Run("runsc", func(b *testing.B) {
		ref := f.create()
		bundle := filepath.Dir(f.runscRoot(ref))
		root := b.TempDir()
		for i := 0; b.Loop(); i++ {
			name := fmt.Sprintf("bare-%d-%d", b.N, i)
			runsc(b, root, "--network=none", "--gofer-network-namespace=new", "--ignore-cgroups", "--overlay2=all:dir="+root, "run", "-detach", "-bundle="+bundle, name)
			b.StopTimer()
			runsc(b, root, "delete", "-force", name)
			b.StartTimer()
		}
	})
}

func BenchmarkOutput(b *testing.B) {
	const size = 256 << 20
	f := startDriver(b, 0)
	ref := f.create()
	request := &plugin.ExecRequest{Argv: []string{"dd", "if=/dev/zero", "bs=1M", fmt.Sprint("count=", size>>20), "status=none"}}
	b.Run("driver", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if _, err := f.Exec(f.ctx(), ref, request, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("runsc", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			cmd := runscCommand(f.runscRoot(ref), append([]string{"exec", ref.ID}, request.Argv...)...)
			cmd.Stdout = struct{ io.Writer }{io.Discard}
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkFile(b *testing.B) {
	content := make([]byte, 256<<20)
	f := startDriver(b, 0)
	ref := f.create()
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if err := f.WriteFile(f.ctx(), ref, "/tmp/file", 0o644, bytes.NewReader(content)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if err := f.ReadFile(f.ctx(), ref, "/tmp/file", 0, io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func (f *fixture) runscRoot(ref plugin.Ref) string {
	return filepath.Join(f.stateDir, "sandboxes", ref.ID, "runsc")
}

func runscCommand(root string, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: filepath.Join(built, "sandboxctl-driver-local"),
		Args: append([]string{"runsc", "--root=."}, args...), Dir: root,
	}
}

func runsc(b *testing.B, root string, args ...string) {
	b.Helper()
	if err := runscCommand(root, args...).Run(); err != nil {
		b.Fatalf("runsc %q: %v", args, err)
	}
}
