package packaging_test

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// snapshot is the folder that `make snapshot` made.
func snapshot(t *testing.T) string {
	t.Helper()
	dist := os.Getenv("SANDBOXCTL_TEST_SNAPSHOT")
	if dist == "" {
		t.Skip("building a release takes minutes; `make snapshot` does it and runs this test")
	}
	return dist
}

// one is the only file of a name that may hold asterisks.
func one(t *testing.T, dist, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s is %q (%v), not one file", pattern, found, err)
	}
	return found[0]
}

// programsIn lists the executables of an archive by their paths.
func programsIn(t *testing.T, archive string) []string {
	t.Helper()
	var found []string
	if filepath.Ext(archive) == ".zip" {
		// Zip files do not say on Windows what can be executed.
		read, err := zip.OpenReader(archive)
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		for _, file := range read.File {
			if strings.HasSuffix(file.Name, ".exe") {
				found = append(found, file.Name)
			}
		}
	} else {
		for header := range unpacked(t, archive) {
			if header.FileInfo().Mode().IsRegular() && header.Mode&0o111 != 0 {
				found = append(found, header.Name)
			}
		}
	}
	slices.Sort(found)
	return found
}

// unpacked are the entries of a tar file with their content.
func unpacked(t *testing.T, archive string) map[*tar.Header][]byte {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	entries := map[*tar.Header][]byte{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		content, readErr := io.ReadAll(reader)
		if err = errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		entries[header] = content
	}
}

func TestSnapshotHoldsEveryProgram(t *testing.T) {
	dist := snapshot(t)
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			drivers := []string{"modal", "opensandbox", "sbx"}
			suffix, format := "", "tar.gz"
			if system == "windows" {
				suffix, format = ".exe", "zip"
			}
			alone := func(driver string, want ...string) {
				got := programsIn(t, one(t, dist, fmt.Sprintf("sandboxctl-driver-%s_*_%s_%s.%s", driver, system, arch, format)))
				if !slices.Equal(got, want) {
					t.Errorf("driver %s for %s/%s holds %q, not %q", driver, system, arch, got, want)
				}
			}
			everything := []string{"bin/sandboxctl" + suffix}
			for _, driver := range drivers {
				everything = append(everything, "libexec/sandboxctl/sandboxctl-driver-"+driver+suffix)
				alone(driver, "sandboxctl-driver-"+driver+suffix)
			}
			if system == "linux" {
				everything = append(everything, "libexec/sandboxctl/sandboxctl-driver-local", "libexec/sandboxctl/sandboxctl-guest")
				alone("local", "sandboxctl-driver-local", "sandboxctl-guest")
				one(t, dist, fmt.Sprintf("sandboxctl_*_linux_%s.deb", arch))
				one(t, dist, fmt.Sprintf("sandboxctl_*_linux_%s.rpm", arch))
			}
			slices.Sort(everything)
			if got := programsIn(t, one(t, dist, fmt.Sprintf("sandboxctl_*_%s_%s.%s", system, arch, format))); !slices.Equal(got, everything) {
				t.Errorf("%s/%s holds %q, not %q", system, arch, got, everything)
			}
		}
	}
}

func TestSnapshotHasChecksumsAndModules(t *testing.T) {
	dist := snapshot(t)
	sums, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Fatal(err)
		}
		if is := sha256.Sum256(content); hex.EncodeToString(is[:]) != sum {
			t.Errorf("the checksum of %s is wrong", name)
		}
		counted++
	}
	if counted != 31 { // 6 of everything, 2 + 3×6 of one driver, 4 packages, 1 list of modules
		t.Errorf("%d files have a checksum", counted)
	}
	var modules struct {
		Components []struct{ Name, Version string }
	}
	content, err := os.ReadFile(one(t, dist, "sandboxctl_*.cdx.json"))
	if err == nil {
		err = json.Unmarshal(content, &modules)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range modules.Components {
		if component.Name == "gvisor.dev/gvisor" && component.Version != "" {
			return
		}
	}
	t.Errorf("gVisor is not among the %d modules", len(modules.Components))
}

// TestSnapshotRuns runs a command in a sandbox with what was unpacked, as a new user does.
func TestSnapshotRuns(t *testing.T) {
	dist := snapshot(t)
	if runtime.GOOS != "linux" {
		t.Skip("the local driver runs on Linux only")
	}
	var release struct{ Version string }
	content, err := os.ReadFile(filepath.Join(dist, "metadata.json"))
	if err == nil {
		err = json.Unmarshal(content, &release)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, unpack := range map[string]func(t *testing.T, dir string) (program string){
		"archive": func(t *testing.T, dir string) string {
			for header, content := range unpacked(t, one(t, dist, "sandboxctl_*_linux_"+runtime.GOARCH+".tar.gz")) {
				path := filepath.Join(dir, header.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, content, header.FileInfo().Mode()); err != nil {
					t.Fatal(err)
				}
			}
			return filepath.Join(dir, "bin/sandboxctl")
		},
		"deb": func(t *testing.T, dir string) string {
			if _, err := exec.LookPath("dpkg-deb"); err != nil {
				t.Skip("there is NO dpkg-deb here, so the package was NOT tested")
			}
			if out, err := exec.Command("dpkg-deb", "-x", one(t, dist, "sandboxctl_*_linux_"+runtime.GOARCH+".deb"), dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return filepath.Join(dir, "usr/bin/sandboxctl")
		},
		"rpm": func(t *testing.T, dir string) string {
			if _, err := exec.LookPath("rpm"); err != nil || os.Getuid() != 0 {
				t.Skip("there is NO rpm here, or no root to install with it, so the package was NOT tested")
			}
			file := one(t, dist, "sandboxctl_*_linux_"+runtime.GOARCH+".rpm")
			// The directory has no database of what is installed, and so no dependencies.
			if out, err := exec.Command("rpm", "--root", dir, "--nodeps", "--nosignature", "-i", file).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := exec.Command("rpm", "--root", dir, "--nosignature", "-V", "--nodeps", "sandboxctl").CombinedOutput(); err != nil {
				t.Errorf("what is installed is not what is packed: %v: %s", err, out)
			}
			return filepath.Join(dir, "usr/bin/sandboxctl")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "r")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			program := unpack(t, dir)
			expect := func(want string, args ...string) {
				t.Helper()
				command := exec.Command(program, args...)
				command.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
				if out, err := command.CombinedOutput(); err != nil || string(out) != want+"\n" {
					t.Errorf("%q: %v: %s", args, err, out)
				}
			}
			expect("it runs", "run", "--", "echo", "it runs")
			expect(release.Version, "version", "--field", "version")
			for _, driver := range []string{"local", "modal", "opensandbox", "sbx"} {
				expect(release.Version, "driver", "info", driver, "--field", "version")
			}
		})
	}
}
