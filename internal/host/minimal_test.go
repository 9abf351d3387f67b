//go:build unix

package host

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// minimalDriver builds examples/driver-minimal, as a release would be built.
func minimalDriver(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := plugintest.Build(dir, "../../examples/driver-minimal"); err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "driver-minimal")
}

type noEvents struct{}

func (noEvents) Created([]byte)           {}
func (noEvents) Progress(plugin.Progress) {}
func (noEvents) Warn(string)              {}

func TestMinimalDriverFromCreateToDestroy(t *testing.T) {
	h := newHost(t, func(o *Options) { o.DevOverrides = map[string]string{"minimal": minimalDriver(t)} })
	driver := start(t, h, "minimal")
	ctx, ref := t.Context(), plugin.Ref{ID: "sb-aaaaaaaaaaaa"}
	made, err := driver.Create(ctx, &plugin.SandboxSpec{ID: ref.ID, Name: "box", CreatedAt: time.Now()}, noEvents{})
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.WriteFile(ctx, ref, "dir/file", 0o600, bytes.NewReader([]byte("a\x00b\n"))); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	status, err := driver.Exec(ctx, ref, &plugin.ExecRequest{
		Argv: []string{"sh", "-c", `cat dir/file - && pwd >&2 && kill -TERM $$`}, Stdin: true,
	}, &plugin.ExecIO{Stdin: bytes.NewReader([]byte("input")), Stdout: &stdout, Stderr: &stderr})
	if err != nil || status.Code != 143 || status.Reason != plugin.ExitSignaled || status.Signal != "TERM" {
		t.Errorf("exec: %+v %v", status, err)
	}
	if stdout.String() != "a\x00b\ninput" || stderr.String() != made.Workdir+"\n" {
		t.Errorf("output %q %q", &stdout, &stderr)
	}
	status, err = driver.Exec(ctx, ref, &plugin.ExecRequest{
		Argv: []string{"sh", "-c", "sleep 60 & sleep 60"}, Timeout: 100 * time.Millisecond,
	}, &plugin.ExecIO{Stdout: &stdout, Stderr: &stderr})
	if err != nil || status.Reason != plugin.ExitTimedOut {
		t.Errorf("timeout: %+v %v", status, err)
	}
	for range 2 {
		list, err := driver.List(ctx, plugin.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		gone, err := driver.Destroy(ctx, ref)
		if err != nil || gone != (len(list.Sandboxes) == 0) {
			t.Errorf("%d sandboxes, then destroy: %v %v", len(list.Sandboxes), gone, err)
		}
	}
	if _, err := driver.Inspect(ctx, ref); plugin.KindOf(err) != plugin.KindNotFound {
		t.Errorf("inspect: %v", err)
	}
	for _, id := range []string{"", ".", "..", "../minimal"} {
		if gone, err := driver.Destroy(ctx, plugin.Ref{ID: id}); err == nil && !gone {
			t.Errorf("destroyed %q", id)
		}
	}
}

// BenchmarkStartListClose is what ls pays for one driver; its budget is a median of
// 10 ms.
func BenchmarkStartListClose(b *testing.B) {
	h := newHost(b, func(o *Options) { o.DevOverrides = map[string]string{"minimal": minimalDriver(b)} })
	var whole, closing []time.Duration
	for b.Loop() {
		began := time.Now()
		driver, err := h.Start(b.Context(), "minimal")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := driver.List(b.Context(), plugin.ListRequest{}); err != nil {
			b.Fatal(err)
		}
		answered := time.Now()
		driver.Close()
		closing = append(closing, time.Since(answered))
		whole = append(whole, time.Since(began))
	}
	b.ReportMetric(medianMillis(whole), "ms-median")
	b.ReportMetric(medianMillis(closing), "ms-median-close")
}

func medianMillis(durations []time.Duration) float64 {
	slices.Sort(durations)
	return durations[len(durations)/2].Seconds() * 1000
}
