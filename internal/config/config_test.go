package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load reads a configuration with these flags and variables.
func load(t *testing.T, content string, env map[string]string, flags ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, name := range []string{"driver", "output", "color", "ttl", "profile"} {
		set.String(name, "", "")
	}
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	getenv := func(name string) string {
		if name == "SANDBOXCTL_CONFIG" {
			return path
		}
		return env[name]
	}
	if env == nil {
		env = map[string]string{}
	}
	env["HOME"] = "/home/x"
	return Load(getenv, set)
}

func TestPrecedence(t *testing.T) {
	const file = "driver: from-file\nttl: 2h\nprofiles:\n  ci: {driver: from-profile, output: json}\n"
	for name, test := range map[string]struct {
		env                    map[string]string
		flags                  []string
		wantDriver, wantOutput string
		wantTTL                time.Duration
	}{
		"file":               {nil, nil, "from-file", "text", 2 * time.Hour},
		"profile over file":  {nil, []string{"--profile=ci"}, "from-profile", "json", 2 * time.Hour},
		"variable over both": {map[string]string{"SANDBOXCTL_DRIVER": "from-env", "SANDBOXCTL_PROFILE": "ci"}, nil, "from-env", "json", 2 * time.Hour},
		"flag over all":      {map[string]string{"SANDBOXCTL_DRIVER": "from-env", "SANDBOXCTL_TTL": "3h"}, []string{"--driver=from-flag", "--ttl=0"}, "from-flag", "text", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := load(t, file, test.env, test.flags...)
			if err != nil || got.Driver != test.wantDriver || got.Output != test.wantOutput || got.TTL != test.wantTTL {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	if got, err := load(t, "", nil); err != nil || got.TTL != DefaultTTL || got.Output != "text" || got.Color != "auto" {
		t.Errorf("defaults: %+v, %v", got, err)
	}
}

// Keys of a driver's settings are its own: their case and their dots are kept.
func TestDriverSettings(t *testing.T) {
	got, err := load(t, "drivers:\n  acme:\n    path: /p\n    env: {ACME_KEY: MY_KEY}\n    Labels: {example.com/Team: X}\n    port: 8080\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	acme := got.Drivers["acme"]
	if acme.Path != "/p" || acme.Env["ACME_KEY"] != "MY_KEY" || string(acme.Settings) != `{"Labels":{"example.com/Team":"X"},"port":8080}` {
		t.Errorf("got %+v %s", acme, acme.Settings)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for content, words := range map[string]string{
		"dirver: x\n":                 "unknown key dirver",
		"driver: [x]\n":               "line 1",
		"driver: x\ndriver: y\n":      "already defined",
		"output: yaml\n":              "take text or json",
		"color: red\n":                "take auto or always or never",
		"ttl: soon\n":                 "write a duration",
		"profiles: {ci: {x: y}}\n":    "unknown key x",
		"drivers: {acme: nonsense}\n": "cannot be read",
		"\tx":                         "cannot be read",
	} {
		if _, err := load(t, content, nil); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v does not say %q on one line", content, err, words)
		}
	}
	if _, err := load(t, "profiles: {ci: {}}\n", nil, "--profile=nope"); err == nil || !strings.Contains(err.Error(), "it has: ci") {
		t.Errorf("got %v", err)
	}
}

func TestPaths(t *testing.T) {
	find := func(env map[string]string) Paths {
		t.Helper()
		paths, err := FindPaths(func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	got := find(map[string]string{"HOME": "/home/x"})
	if got.StateDir != "/home/x/.local/state/sandboxctl" || got.DataDir != "/home/x/.local/share/sandboxctl" || got.ConfigFile != "/home/x/.config/sandboxctl/config.yaml" {
		t.Errorf("from HOME: %+v", got)
	}
	got = find(map[string]string{"HOME": "/home/x", "XDG_STATE_HOME": "/s", "XDG_DATA_HOME": "relative", "XDG_CONFIG_HOME": "/c"})
	if got.StateDir != "/s/sandboxctl" || got.DataDir != "/home/x/.local/share/sandboxctl" || got.ConfigFile != "/c/sandboxctl/config.yaml" {
		t.Errorf("from XDG: %+v", got)
	}
	if got := find(map[string]string{"SANDBOXCTL_STATE_DIR": "/state"}); got.StateDir != "/state" {
		t.Errorf("without HOME: %+v", got)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "2h": 2 * time.Hour, "0": 0} {
		if got, err := ParseDuration("x", text); err != nil || got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "-1s", "soon", "NaN", "inf", "1d", "999999999999999999999"} {
		if got, err := ParseDuration("x", text); err == nil {
			t.Errorf("%q became %s", text, got)
		}
	}
}

func TestDefaultDriver(t *testing.T) {
	for goos, want := range map[string]string{"linux": "local", "darwin": "sbx", "windows": "sbx"} {
		if got := defaultDriver(goos); got != want {
			t.Errorf("%s: %s", goos, got)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("driver: x\ndrivers: {a: {b: [1, {c: d}]}}\n")
	f.Add("profiles: {ci: {ttl: 1h}}\n")
	f.Fuzz(func(t *testing.T, content string) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Skip(err)
		}
		if _, err := readFile(path, true); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
