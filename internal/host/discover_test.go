//go:build unix

package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// place puts an executable file somewhere, and its directories.
func place(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDiscoverOrder(t *testing.T) {
	root := t.TempDir()
	in := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	executable := place(t, in("app", "bin", "sandboxctl"))
	bundled := place(t, in("app", "bin", "sandboxctl-driver-a"))
	libexec := place(t, in("app", "libexec", "sandboxctl", "sandboxctl-driver-b"))
	place(t, in("app", "libexec", "sandboxctl", "sandboxctl-driver-a"))
	place(t, in("app", "bin", "sandboxctl-driver-Bad_Name"))
	place(t, in("app", "bin", "sandboxctl-driver-sums.txt"))
	place(t, in("bin", "sandboxctl-driver-onpath"))
	configured, override := place(t, in("own", "driver")), place(t, in("dev", "sandboxctl-driver-a"))
	link := in("link")
	if err := os.Symlink(executable, link); err != nil {
		t.Fatal(err)
	}
	installed := func(version string) string {
		return place(t, in("data", "drivers", "a", version, "linux_amd64", "sandboxctl-driver-a"))
	}
	installed("1.9.0")
	newest := installed("1.10.0")
	installed("1.10.0-rc.1")
	place(t, in("data", "drivers", "a", "2.0.0", "plan9_arm", "sandboxctl-driver-a"))

	options := Options{Executable: link, Environ: []string{"PATH=" + in("bin")}}
	check := func(wantSource Source, wantPath string) {
		t.Helper()
		h := New(options)
		h.goos, h.goarch = "linux", "amd64"
		found, err := h.find("a")
		if err != nil || found.Source != wantSource || found.Path != wantPath || found.Problem != nil {
			t.Errorf("want %s %s, got %+v %v", wantSource, wantPath, found, err)
		}
	}
	check(SourceBundled, bundled)
	options.DataDir = in("data")
	check(SourceInstalled, newest)
	options.Drivers = map[string]DriverConfig{"a": {Path: configured}, "c": {Path: "relative/path"}, "d": {}}
	check(SourceConfigured, configured)
	options.DevOverrides = map[string]string{"a": in("dev")}
	check(SourceDevOverride, override)
	options.Environ = []string{plugin.ReattachEnv + `={"a":{"network":"unix","address":"/run/a.sock","pid":1,"protocol_version":1}}`}
	check(SourceReattach, "/run/a.sock")

	t.Chdir(in("bin"))
	var names, problems []string
	for _, found := range New(options).Discover() {
		names = append(names, found.Name)
		if found.Problem != nil {
			problems = append(problems, found.Name)
		}
		if found.Name == "b" && found.Path != libexec {
			t.Errorf("b at %s", found.Path)
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) || !slices.Equal(problems, []string{"c"}) {
		t.Errorf("found %v, problems with %v", names, problems)
	}
}

func TestWindowsExecutablesEndInExe(t *testing.T) {
	dir := t.TempDir()
	place(t, filepath.Join(dir, "sandboxctl.exe"))
	want := place(t, filepath.Join(dir, "sandboxctl-driver-a.exe"))
	place(t, filepath.Join(dir, "sandboxctl-driver-b"))
	h := New(Options{Executable: filepath.Join(dir, "sandboxctl.exe")})
	h.goos = "windows"
	if found := h.Discover(); len(found) != 1 || found[0].Path != want {
		t.Errorf("found %+v", found)
	}
}

func TestUnknownDriver(t *testing.T) {
	h := New(Options{Drivers: map[string]DriverConfig{"modal": {Path: "/x"}}, DataDir: "/data"})
	_, err := h.Start(t.Context(), "mdoal")
	var unknown *UnknownDriverError
	if !errors.As(err, &unknown) || err.Error() != `there is no driver "mdoal"; found are modal` || !strings.Contains(unknown.Hint, "/data/drivers/mdoal/") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"", "../x", "Modal", "1x", strings.Repeat("x", 33), "a/b", "x.exe"} {
		if _, err := h.Start(t.Context(), name); plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestDriversThatOthersCouldHavePlanted(t *testing.T) {
	chown := func(uid, gid int) func(string) error {
		return func(path string) error { return os.Chown(path, uid, gid) }
	}
	chmod := func(mode os.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(path, mode) }
	}
	dir := filepath.Dir
	self := func(path string) string { return path }
	for _, test := range []struct {
		name    string
		of      func(path string) string
		spoil   []func(string) error
		refused bool
	}{
		{"as it is", self, nil, false},
		{"writable by everybody", self, []func(string) error{chmod(0o757)}, true},
		{"writable by a group", self, []func(string) error{chown(-1, 12345), chmod(0o775)}, true},
		{"writable by the user's own group", self, []func(string) error{chown(0, 0), chmod(0o775)}, false},
		{"another user's", self, []func(string) error{chown(12345, -1)}, true},
		{"in a directory writable by everybody", dir, []func(string) error{chmod(0o757)}, true},
		{"in a sticky directory", dir, []func(string) error{chmod(0o777 | os.ModeSticky)}, true},
		{"in another user's directory", dir, []func(string) error{chown(12345, -1)}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := place(t, filepath.Join(t.TempDir(), "bin", "sandboxctl-driver-a"))
			for _, spoil := range test.spoil {
				if err := spoil(test.of(path)); errors.Is(err, os.ErrPermission) {
					t.Skip("only root can give files away")
				} else if err != nil {
					t.Fatal(err)
				}
			}
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			for _, configured := range []string{path, link} {
				h := New(Options{Drivers: map[string]DriverConfig{"a": {Path: configured}}})
				found := h.Discover()
				if len(found) != 1 || (found[0].Problem != nil) != test.refused {
					t.Fatalf("%s: %+v", configured, found)
				}
				if test.refused {
					wantStartError(t, found[0].Problem, ReasonUntrusted, test.of(path))
				}
			}
		})
	}
}
