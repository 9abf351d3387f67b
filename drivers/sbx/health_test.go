package sbx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func statuses(checks []plugin.Check) string {
	var all []string
	for _, check := range checks {
		all = append(all, check.Name+"="+string(check.Status))
	}
	return strings.Join(all, " ")
}

func TestHealth(t *testing.T) {
	const good = "sbx program=ok sbx version=ok signed in to Docker=ok "
	for name, test := range map[string]struct {
		config sbxdouble.Config
		want   string
		tells  string
	}{
		"all well":       {sbxdouble.Config{}, good + "network policy=ok virtualisation=ok", "deny-all"},
		"newer":          {sbxdouble.Config{Version: "2.0.0"}, good + "network policy=ok virtualisation=ok", "newer than 0.45"},
		"older":          {sbxdouble.Config{Generation: sbxdouble.Gen035, Version: "0.31.2"}, "sbx program=ok sbx version=warning signed in to Docker=ok network policy=ok virtualisation=ok", "Upgrade sbx"},
		"open and old":   {sbxdouble.Config{Generation: sbxdouble.Gen035, Preset: allowAll}, good + "network policy=warning virtualisation=ok", "sbx policy init deny-all"},
		"baseline":       {sbxdouble.Config{Preset: balanced}, good + "network policy=ok virtualisation=ok", "--allow-host is refused"},
		"signed out":     {sbxdouble.Config{LoggedOut: true}, "sbx program=ok sbx version=ok signed in to Docker=failed", "sbx login"},
		"no KVM":         {sbxdouble.Config{CreateFaults: []string{sbxdouble.CreateNoKVM}}, good + "network policy=ok virtualisation=failed", "kvm"},
		"noise":          {sbxdouble.Config{DaemonHeader: "stdout", Banner: "stdout", WarnLine: "stdout"}, good + "network policy=ok virtualisation=ok", ""},
		"stalled policy": {sbxdouble.Config{Hang: []string{"policy ls"}}, good + "network policy=failed virtualisation=ok", "sandboxd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, test.config, "call_timeout=10s")
			checks, err := b.CheckHealth(t.Context())
			if err != nil || statuses(checks) != test.want {
				t.Fatalf("%s, %v; want %s", statuses(checks), err, test.want)
			}
			var text string
			for _, check := range checks {
				text += check.Detail + " " + check.Fix + "\n"
				if check.Status == plugin.CheckFailed && check.Fix == "" {
					t.Errorf("%s has no fix", check.Name)
				}
			}
			if !strings.Contains(text, test.tells) {
				t.Errorf("%s does not say %q", text, test.tells)
			}
		})
	}
}

func TestPolicyNotInitialised(t *testing.T) {
	for _, seed := range []int64{0, allYes} {
		b := &bench{t: t, stateDir: t.TempDir(), double: sbxdouble.Install(t, sbxdouble.Config{Seed: seed})}
		b.startDriver(b.double.Path)
		_, err := b.Create(t.Context(), newSpec(plugin.NetworkNone), &events{})
		wantError(t, err, plugin.KindAuth, "sbx policy init deny-all")
		b.nothingLeft()
	}
}

func TestNotInstalled(t *testing.T) {
	b := &bench{t: t, stateDir: t.TempDir()}
	b.startDriver(filepath.Join(t.TempDir(), "sbx"))
	_, err := b.List(t.Context(), plugin.ListRequest{})
	wantError(t, err, plugin.KindAuth, "was not found", "sbx login")
	checks, err := b.CheckHealth(t.Context())
	if err != nil || statuses(checks) != "sbx program=failed" || checks[0].Fix == "" {
		t.Errorf("%+v, %v", checks, err)
	}
}

func TestAnotherProgramCalledSbx(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sbx")
	for _, program := range []string{"#!/bin/sh\necho 'sbx 1.2.3 - snapshot box'\n", "#!/bin/sh\necho usage >&2; exit 2\n", "#!/bin/sh\n"} {
		if err := os.WriteFile(path, []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		b := &bench{t: t, stateDir: t.TempDir()}
		b.startDriver(path)
		_, err := b.Create(t.Context(), newSpec(plugin.NetworkNone), &events{})
		wantError(t, err, plugin.KindUnavailable, "is not Docker's sbx", path)
	}
}

// promptly is far below the thirty seconds of a call that hangs, and above what a slow
// machine needs to start some programs; on a quiet one it is a fraction of a second.
const promptly = 20 * time.Second

// Signed out, sbx asks for a device code and opens a browser where it sees a terminal.
func TestSignedOut(t *testing.T) {
	for name, c := range map[string]sbxdouble.Config{
		"refuses off a terminal": {LoggedOut: true},
		"prompts everywhere":     {LoggedOut: true, PromptOffTTY: true, Generation: sbxdouble.Gen039},
		"knows --no-input":       {LoggedOut: true, PromptOffTTY: true, Seed: allYes},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c)
			started := time.Now()
			_, err := b.Create(t.Context(), newSpec(plugin.NetworkNone), &events{})
			wantError(t, err, plugin.KindAuth, "sbx login")
			if took := time.Since(started); took > promptly {
				t.Errorf("took %s", took)
			}
			_, err = b.List(t.Context(), plugin.ListRequest{})
			wantError(t, err, plugin.KindAuth)
			b.nothingLeft()
		})
	}
}

func TestSignedOutMeanwhile(t *testing.T) {
	b := newBench(t, sbxdouble.Config{Generation: sbxdouble.Gen039})
	ref := b.open()
	for _, prompts := range []bool{false, true} {
		b.double.Change(t, func(c *sbxdouble.Config) { c.LoggedOut, c.PromptOffTTY = true, prompts })
		started := time.Now()
		_, err := b.exec(ref, argv("true"), "")
		wantError(t, err, plugin.KindAuth, "sbx login")
		if took := time.Since(started); took > promptly {
			t.Errorf("took %s", took)
		}
	}
}
