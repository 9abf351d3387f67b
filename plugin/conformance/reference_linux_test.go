package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/conformance/conformancetest"
	"github.com/sandboxctl/sandboxctl/plugin/conformance/internal/reference"
)

// TestMain makes the test binary a driver when it is started by a driver's name. The
// defect is the name of the directory that it is in.
func TestMain(m *testing.M) {
	executable := os.Args[0]
	if filepath.Base(executable) != "sandboxctl-driver-"+reference.Name {
		os.Exit(m.Run())
	}
	if defect := filepath.Base(filepath.Dir(executable)); defect != "sound" {
		plugin.Serve(reference.Broken(defect))
	}
	plugin.Serve(reference.New())
}

// driver is the reference driver with a defect, in a process of its own.
func driver(t *testing.T, defect string) conformance.Target {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the reference driver needs root, to make namespaces")
	}
	for _, tool := range []string{"unshare", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the reference driver needs util-linux: %v", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), defect)
	path := filepath.Join(dir, "sandboxctl-driver-"+reference.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := reference.New().RemoveAll(ctx, filepath.Join(state, "drivers", reference.Name)); err != nil {
			t.Error(err)
		}
	})
	target := conformance.Binary(conformance.BinaryOptions{Name: reference.Name, Path: path, StateDir: state})
	target.CheckedAgainst = "namespaces of this machine"
	return target
}

func TestReference(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole suite takes a minute")
	}
	conformancetest.Test(t, driver(t, "sound"))
}
