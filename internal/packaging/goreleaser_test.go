// Package packaging_test checks what a release would hold. Building one takes minutes and
// goreleaser; these are the mistakes that are made when something is added.
package packaging_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

type release struct {
	Builds []struct {
		ID, Main, Binary string
		Env              []string
		Flags            []string
		Goos, Goarch     []string
	}
	Archives []archive
	Nfpms    []struct {
		IDs      []string `yaml:"ids"`
		Formats  []string
		Bindir   string
		Contents []struct{ Src, Dst string }
	}
	Checksum struct{ Algorithm string }
}

type archive struct {
	ID    string
	IDs   []string `yaml:"ids"`
	Files []archiveFile
}

// archiveFile is written as a path, or as one with a destination.
type archiveFile struct{ Src string }

func (f *archiveFile) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		return node.Decode(&f.Src)
	}
	type plain archiveFile
	return node.Decode((*plain)(f))
}

func read(t *testing.T) release {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var parsed release
	if err := yaml.Unmarshal(data, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

// programs are the folders of all programs that users get.
func programs(t *testing.T) []string {
	t.Helper()
	drivers, err := filepath.Glob(filepath.Join(root, "drivers/*/cmd/sandboxctl-*"))
	if err != nil || len(drivers) < 5 {
		t.Fatalf("found the programs %q (%v)", drivers, err)
	}
	found := []string{"./cmd/sandboxctl"}
	for _, path := range drivers {
		found = append(found, "./"+filepath.ToSlash(strings.TrimPrefix(path, root+"/")))
	}
	return found
}

func TestEveryProgramIsBuilt(t *testing.T) {
	config := read(t)
	for _, program := range programs(t) {
		built := false
		for _, build := range config.Builds {
			if build.Main != program {
				continue
			}
			built = true
			if filepath.Base(build.Binary) != filepath.Base(program) {
				t.Errorf("%s is built as %s", program, build.Binary)
			}
			if !slices.Contains(build.Env, "CGO_ENABLED=0") || !slices.Contains(build.Flags, "-trimpath") || len(build.Goarch) != 2 {
				t.Errorf("%s is built with %v %v for %v", program, build.Env, build.Flags, build.Goarch)
			}
			systems := 3
			if strings.Contains(program, "/local/") {
				systems = 1
			}
			if len(build.Goos) != systems {
				t.Errorf("%s is built for %v", program, build.Goos)
			}
		}
		if !built {
			t.Errorf("%s is not built", program)
		}
	}
	for _, build := range config.Builds {
		if !slices.Contains(programs(t), build.Main) {
			t.Errorf("build %s is of %s, which is no program", build.ID, build.Main)
		}
	}
}

func TestEveryBuildIsShipped(t *testing.T) {
	config := read(t)
	for _, build := range config.Builds {
		if !slices.Contains(config.Archives[0].IDs, build.ID) {
			t.Errorf("%s is not in the archive of everything", build.ID)
		}
		if !slices.Contains(config.Nfpms[0].IDs, build.ID) {
			t.Errorf("%s is not in the packages", build.ID)
		}
		alone := slices.ContainsFunc(config.Archives[1:], func(a archive) bool { return slices.Contains(a.IDs, build.ID) })
		if build.ID != "sandboxctl" && !alone {
			t.Errorf("%s is in no archive of a single driver", build.ID)
		}
	}
	if !slices.Equal(config.Nfpms[0].Formats, []string{"deb", "rpm"}) || config.Checksum.Algorithm != "sha256" {
		t.Errorf("packages are %v, checksums %s", config.Nfpms[0].Formats, config.Checksum.Algorithm)
	}
}

// TestDriversAreFoundWhereTheyAreInstalled holds the folders against each other:
// sandboxctl looks in ../libexec/sandboxctl.
func TestDriversAreFoundWhereTheyAreInstalled(t *testing.T) {
	config := read(t)
	for _, build := range config.Builds {
		want := "libexec/sandboxctl"
		if build.ID == "sandboxctl" {
			want = "bin"
		}
		if dir := filepath.Dir(build.Binary); dir != want {
			t.Errorf("%s is in %s, not in %s", build.ID, dir, want)
		}
	}
	if config.Nfpms[0].Bindir != "/usr" {
		t.Errorf("packages install into %s", config.Nfpms[0].Bindir)
	}
}

func TestFilesOfAReleaseExist(t *testing.T) {
	config := read(t)
	var sources []string
	for _, archive := range config.Archives {
		for _, file := range archive.Files {
			sources = append(sources, file.Src)
		}
	}
	for _, content := range config.Nfpms[0].Contents {
		sources = append(sources, content.Src)
	}
	for _, source := range sources {
		// The manual pages are made by a hook of the release.
		if strings.HasPrefix(source, "bin/man/") {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root, source)); err != nil || len(found) == 0 {
			t.Errorf("%s does not exist (%v)", source, err)
		}
	}
	for _, shell := range []string{"sandboxctl.bash", "_sandboxctl", "sandboxctl.fish"} {
		if !slices.Contains(sources, "completions/"+shell) {
			t.Errorf("the packages do not hold completions/%s", shell)
		}
	}
}
