//go:build linux

package modal_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/modal"
	"github.com/sandboxctl/sandboxctl/plugin"
	"github.com/sandboxctl/sandboxctl/plugin/conformance"
	"github.com/sandboxctl/sandboxctl/plugin/conformance/conformancetest"
	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

// linkSpeed is a network in the double's place that has none: without it the
// double sends faster than any service could.
const linkSpeed = "50000000"

// TestConformance runs the suite against the double. Both ends are processes of
// their own, without the race detector, because the suite measures memory.
func TestConformance(t *testing.T) {
	target := conformance.Binary(conformance.BinaryOptions{
		Name: "modal", Path: build(t, "./cmd/sandboxctl-driver-modal"), StateDir: t.TempDir(), Environ: startDouble(t),
	})
	target.Options = map[string]string{"host-match": "sni"}
	target.CheckedAgainst = "double, checked with the vendor's Python and JS clients; service not run"
	conformancetest.Test(t, target)
}

// TestConformanceOfTheService runs the suite against Modal itself, which costs
// money: a few cents for about a hundred sandboxes of the smallest size. It needs
// SANDBOXCTL_TEST_MODAL=1 and credentials. The sandboxes live for half an hour at
// most, in an app of their own, and all of that app's are destroyed at the end.
func TestConformanceOfTheService(t *testing.T) {
	if os.Getenv("SANDBOXCTL_TEST_MODAL") != "1" {
		t.Skip("SANDBOXCTL_TEST_MODAL=1 and Modal credentials run the suite against the service")
	}
	settings := map[string]string{"app": "sandboxctl-conformance"}
	encoded, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroyAll(t, settings) })
	target := conformance.Binary(conformance.BinaryOptions{
		Name: "modal", Path: build(t, "./cmd/sandboxctl-driver-modal"), StateDir: t.TempDir(), Settings: encoded,
	})
	target.Options = map[string]string{"host-match": "sni"}
	target.CheckedAgainst = "the service"
	conformancetest.Test(t, target)
}

// destroyAll removes what a broken run has left in the suite's own app.
func destroyAll(t *testing.T, settings map[string]string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	environment := make(map[string]string)
	for _, variable := range modal.New().Info().Env {
		if value, ok := os.LookupEnv(variable.Name); ok {
			environment[variable.Name] = value
		}
	}
	b := startDriver(t, setup{settings: settings}, environment)
	list, err := b.List(ctx, plugin.ListRequest{})
	if err != nil {
		t.Fatalf("sandboxes may be left at Modal, in the app %s: %v", settings["app"], err)
	}
	for _, sandbox := range list.Sandboxes {
		t.Errorf("the sandbox %s was left, and is destroyed now", sandbox.ID)
		if _, err := b.Destroy(ctx, plugin.Ref{ID: sandbox.ID, Handle: sandbox.Handle}); err != nil {
			t.Errorf("destroy %s: %v", sandbox.ID, err)
		}
	}
}

func build(t *testing.T, command string) string {
	t.Helper()
	dir := t.TempDir()
	if err := plugintest.Build(dir, command); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, filepath.Base(command))
}

// startDouble returns the environment of a client of the double.
func startDouble(t *testing.T) []string {
	t.Helper()
	double := exec.Command(build(t, "./internal/modaldouble/cmd/modaldouble"), "-bandwidth", linkSpeed)
	double.Stderr = os.Stderr
	lifeline, err := double.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := double.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := double.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = lifeline.Close() // which ends it
		if err := double.Wait(); err != nil {
			t.Errorf("the double: %v", err)
		}
	})
	var environment []string
	for lines := bufio.NewScanner(said); lines.Scan() && lines.Text() != ""; {
		environment = append(environment, lines.Text())
	}
	return environment
}
