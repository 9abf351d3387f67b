//go:build unix

package faultdriver_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/plugin"
)

const binary = "sandboxctl-driver-" + faultdriver.Name

// TestMain makes the test binary the driver when it is started by the driver's name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != binary {
		os.Exit(m.Run())
	}
	if err := faultdriver.Serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newHost finds the driver with a fault of its start and one of its backend.
func newHost(t *testing.T, start, backend faultdriver.Fault) *host.Host {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), binary)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	if start != "" {
		if err := os.WriteFile(path+".fault", []byte(start), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return host.New(host.Options{
		StateDir: t.TempDir(), Environ: os.Environ(), Version: "test",
		Drivers: map[string]host.DriverConfig{faultdriver.Name: {Path: path, Settings: fmt.Appendf(nil, `{"fault":%q}`, backend)}},
	})
}

func startDriver(t *testing.T, h *host.Host) *host.Driver {
	t.Helper()
	driver, err := h.Start(t.Context(), faultdriver.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Close)
	return driver
}

type events struct{ handles [][]byte }

func (e *events) Created(handle []byte)    { e.handles = append(e.handles, handle) }
func (e *events) Progress(plugin.Progress) {}
func (e *events) Warn(string)              {}

func create(ctx context.Context, driver *host.Driver, fault faultdriver.Fault, told *events) (*plugin.Sandbox, error) {
	return driver.Create(ctx, &plugin.SandboxSpec{
		RequestID: "r", ID: "sb-test", Name: "test", Owner: "me", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
		Network: plugin.NetworkPolicy{Mode: plugin.NetworkNone}, Options: map[string]string{"fault": string(fault)},
	}, told)
}

// sandbox is a sandbox that has a fault, in a driver that has none.
func sandbox(t *testing.T, fault faultdriver.Fault) (*host.Driver, plugin.Ref) {
	t.Helper()
	driver := startDriver(t, newHost(t, "", ""))
	made, err := create(t.Context(), driver, fault, &events{})
	if err != nil {
		t.Fatal(err)
	}
	return driver, plugin.Ref{ID: made.ID, Handle: made.Handle}
}

func TestWithoutFault(t *testing.T) {
	driver, ref := sandbox(t, "")
	var stdout, stderr, content, archive bytes.Buffer
	status, err := driver.Exec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "cat; echo err >&2; exit 3"}, Stdin: true},
		&plugin.ExecIO{Stdin: strings.NewReader("in"), Stdout: &stdout, Stderr: &stderr})
	if err != nil || status.Code != 3 || stdout.String() != "in" || stderr.String() != "err\n" {
		t.Errorf("exec: %+v, %v, %q, %q", status, err, stdout.String(), stderr.String())
	}
	if err := driver.WriteFile(t.Context(), ref, "/dir/file", 0, strings.NewReader("content")); err != nil {
		t.Error(err)
	}
	if err := driver.ReadFile(t.Context(), ref, "/dir/file", 0, &content); err != nil || content.String() != "content" {
		t.Errorf("read: %q, %v", content.String(), err)
	}
	if err := driver.GetArchive(t.Context(), ref, "/dir", false, &archive); err != nil {
		t.Error(err)
	}
	if err := driver.PutArchive(t.Context(), ref, "/copy", &archive); err != nil {
		t.Error(err)
	}
	if err := driver.ReadFile(t.Context(), ref, "/copy/dir/file", 0, &content); err != nil || content.String() != "contentcontent" {
		t.Errorf("read of the copy: %q, %v", content.String(), err)
	}
	if err := driver.ReadFile(t.Context(), ref, "/missing", 0, io.Discard); plugin.KindOf(err) != plugin.KindPath {
		t.Errorf("missing file: %v", err)
	}
	if gone, err := driver.Destroy(t.Context(), ref); gone || err != nil {
		t.Errorf("destroy: %v, %v", gone, err)
	}
}

func TestStartFaults(t *testing.T) {
	for fault, reason := range map[faultdriver.Fault]host.StartReason{
		faultdriver.StartNoise: host.ReasonNoise, faultdriver.StartExit: host.ReasonExited, faultdriver.StartProtocol: host.ReasonProtocol,
	} {
		var failed *host.StartError
		if _, err := newHost(t, fault, "").Start(t.Context(), faultdriver.Name); !errors.As(err, &failed) || failed.Reason != reason {
			t.Errorf("%s: %v, want reason %s", fault, err, reason)
		}
	}
	for _, fault := range []faultdriver.Fault{faultdriver.StartSlow, faultdriver.StartGrandchild} {
		driver := startDriver(t, newHost(t, fault, ""))
		started := time.Now()
		driver.Close()
		if took := time.Since(started); took > 3*time.Second {
			t.Errorf("%s: closing took %v", fault, took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := newHost(t, faultdriver.StartHangs, "").Start(ctx, faultdriver.Name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v", faultdriver.StartHangs, err)
	}
}

func TestBackendFaults(t *testing.T) {
	list := func(fault faultdriver.Fault) (*plugin.SandboxList, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return startDriver(t, newHost(t, "", fault)).List(ctx, plugin.ListRequest{})
	}
	for fault, kind := range map[faultdriver.Fault]plugin.Kind{
		faultdriver.AuthMissing: plugin.KindAuth, faultdriver.BackendDown: plugin.KindUnavailable, faultdriver.ListFails: plugin.KindUnavailable, faultdriver.ListHangs: plugin.KindUnavailable,
	} {
		if _, err := list(fault); plugin.KindOf(err) != kind {
			t.Errorf("%s: %v, want kind %s", fault, err, kind)
		}
	}
	if got, err := list(faultdriver.ListBadRow); err != nil || len(got.Warnings) != 1 {
		t.Errorf("%s: %+v, %v", faultdriver.ListBadRow, got, err)
	}
	if got, err := list(faultdriver.ListLong); err != nil || len(got.Sandboxes) != 20_000 {
		t.Errorf("%s: %v", faultdriver.ListLong, err)
	}
}

func TestCreateFaults(t *testing.T) {
	for _, c := range []struct {
		fault  faultdriver.Fault
		wrong  func(error) bool
		listed int
	}{
		{faultdriver.CreateFails, ofKind(plugin.KindUnavailable), 0},
		{faultdriver.CreateLeaves, leftBehind, 1},
		{faultdriver.CreateLies, ofKind(plugin.KindUnavailable), 1},
		{faultdriver.CreateDies, crashed, 1},
		{faultdriver.CreateEndsEarly, lost, 1},
		{faultdriver.CreateHangs, hung, 1},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			h := newHost(t, "", "")
			told := &events{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := create(ctx, startDriver(t, h), c.fault, told)
			if !c.wrong(err) {
				t.Errorf("error is %T %v", err, err)
			}
			// A process that dies may take what it has just sent along.
			if len(told.handles) != 1 && c.fault != faultdriver.CreateDies {
				t.Errorf("%d handles were told, want 1", len(told.handles))
			}
			left, err := startDriver(t, h).List(t.Context(), plugin.ListRequest{})
			if err != nil || len(left.Sandboxes) != c.listed {
				t.Errorf("%d sandboxes are left, want %d; %v", len(left.Sandboxes), c.listed, err)
			}
		})
	}
}

func ofKind(kind plugin.Kind) func(error) bool {
	return func(err error) bool { return plugin.KindOf(err) == kind }
}

func leftBehind(err error) bool {
	var told *plugin.Error
	return errors.As(err, &told) && told.LeftBehind
}

func crashed(err error) bool {
	var crash *host.CrashError
	return errors.As(err, &crash)
}

func lost(err error) bool {
	var broken *plugin.ConnectionError
	return errors.As(err, &broken)
}

func hung(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

func TestExecFaults(t *testing.T) {
	for fault, wrong := range map[faultdriver.Fault]func(error) bool{
		faultdriver.ExecPanics: crashed, faultdriver.ExecDies: crashed, faultdriver.ExecNoExit: lost, faultdriver.ExecTwoExits: lost,
		faultdriver.ExecNoReason: lost, faultdriver.ExecUnsure: ofKind(plugin.KindIndeterminate), faultdriver.ExecGone: ofKind(plugin.KindNotFound),
		faultdriver.ExecLongError: func(err error) bool { return err != nil && len(err.Error()) < 10<<10 }, faultdriver.ExecHangs: hung,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			driver, ref := sandbox(t, fault)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			status, err := driver.Exec(ctx, ref, &plugin.ExecRequest{Argv: []string{"true"}}, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
			if !wrong(err) {
				t.Errorf("status %+v, error %T %v", status, err, err)
			}
		})
	}
	driver, ref := sandbox(t, faultdriver.ExecLargeFrame)
	var stdout bytes.Buffer
	status, err := driver.Exec(t.Context(), ref, &plugin.ExecRequest{Argv: []string{"true"}}, &plugin.ExecIO{Stdout: &stdout, Stderr: io.Discard})
	if err == nil && (status.Code != 0 || stdout.Len() != 5_000_000) {
		t.Errorf("a large frame gave %+v and %d bytes", status, stdout.Len())
	}
}

func TestDestroyFaults(t *testing.T) {
	driver, ref := sandbox(t, faultdriver.DestroyFails)
	if gone, err := driver.Destroy(t.Context(), ref); gone || plugin.KindOf(err) != plugin.KindUnavailable {
		t.Errorf("%s: %v, %v", faultdriver.DestroyFails, gone, err)
	}
	driver, ref = sandbox(t, faultdriver.DestroyHangs)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := driver.Destroy(ctx, ref); !hung(err) {
		t.Errorf("%s: %v", faultdriver.DestroyHangs, err)
	}
}

func TestFileFaults(t *testing.T) {
	for _, fault := range []faultdriver.Fault{faultdriver.ReadFails, faultdriver.ReadCut, faultdriver.ReadCorrupt} {
		driver, ref := sandbox(t, fault)
		if err := driver.WriteFile(t.Context(), ref, "f", 0, strings.NewReader(strings.Repeat("x", 1000))); err != nil {
			t.Fatal(err)
		}
		if err := driver.ReadFile(t.Context(), ref, "f", 0, io.Discard); err == nil {
			t.Errorf("%s: read without an error", fault)
		}
	}
	driver, ref := sandbox(t, faultdriver.WriteFails)
	var told *plugin.Error
	if err := driver.WriteFile(t.Context(), ref, "f", 0, strings.NewReader("x")); !errors.As(err, &told) || told.PathReason != plugin.PathNoSpace {
		t.Errorf("%s: %v", faultdriver.WriteFails, err)
	}
}

// Each hostile archive holds what it is named after, next to the real file.
func TestArchiveFaults(t *testing.T) {
	names := map[faultdriver.Fault]string{
		faultdriver.ArchiveDotDot: "../escaped", faultdriver.ArchiveAbsolute: "/tmp/sandboxctl-escaped", faultdriver.ArchiveThroughLink: "dir/out/sandboxctl-escaped",
		faultdriver.ArchiveHardLink: "dir/passwd", faultdriver.ArchiveDevice: "dir/device", faultdriver.ArchiveDuplicates: "dir/twice",
		faultdriver.ArchiveMillion: "dir/entry-9999", faultdriver.ArchiveSetuid: "dir/setuid", faultdriver.ArchiveCut: "dir/cut",
	}
	for _, fault := range faultdriver.Archives() {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			driver, ref := sandbox(t, fault)
			if err := driver.WriteFile(t.Context(), ref, "dir/file", 0, strings.NewReader("x")); err != nil {
				t.Fatal(err)
			}
			stream, w := io.Pipe()
			go func() { w.CloseWithError(driver.GetArchive(t.Context(), ref, "dir", false, w)) }()
			found := []string{}
			archive := tar.NewReader(stream)
			var failed error
			// Of a million entries some thousand are enough to see.
			for failed == nil && len(found) < 20_000 {
				var header *tar.Header
				if header, failed = archive.Next(); failed == nil {
					found = append(found, header.Name)
				}
			}
			stream.CloseWithError(io.ErrClosedPipe)
			if failed != nil && errors.Is(failed, io.EOF) == (fault == faultdriver.ArchiveCut) {
				t.Errorf("the archive ended with %v", failed)
			}
			if want := names[fault]; want != "" && !slices.Contains(found, want) || !slices.Contains(found, "dir/file") {
				t.Errorf("the archive holds %d entries, without %q or the file", len(found), want)
			}
		})
	}
}

func TestHostileText(t *testing.T) {
	driver, ref := sandbox(t, faultdriver.HostileText)
	seen, err := driver.Inspect(t.Context(), ref)
	if err != nil || !strings.Contains(seen.StateReason, "\x1b[2J") {
		t.Errorf("%+v, %v", seen, err)
	}
	entries, err := driver.ReadDir(t.Context(), ref, "/")
	if err != nil || len(entries) != 1 || !strings.Contains(entries[0].Name, "\x1b[2J") {
		t.Errorf("%+v, %v", entries, err)
	}
	driver, ref = sandbox(t, faultdriver.ImpossibleNames)
	if entries, err := driver.ReadDir(t.Context(), ref, "/"); err == nil {
		t.Errorf("impossible names were passed on: %+v", entries)
	}
}

func TestClockSkew(t *testing.T) {
	driver, ref := sandbox(t, faultdriver.ClockSkew)
	seen, err := driver.Inspect(t.Context(), ref)
	if err != nil || time.Until(seen.CreatedAt) < 23*time.Hour {
		t.Errorf("%+v, %v", seen, err)
	}
}
