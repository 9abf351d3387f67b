package host

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Source is where a driver was found.
type Source string

// The sources, in the order in which they are tried. The first that has a driver
// of the name decides, even when that driver is refused: falling through to another
// would hide that something is wrong. The working directory and $PATH are never
// tried, since a cloned repository could plant a driver there.
const (
	// SourceReattach is a driver that runs already, named by plugin.ReattachEnv.
	SourceReattach Source = "reattach"
	// SourceDevOverride is Options.DevOverrides.
	SourceDevOverride Source = "dev_override"
	// SourceConfigured is the driver's path in the configuration.
	SourceConfigured Source = "configured"
	// SourceInstalled is under Options.DataDir, the highest version.
	SourceInstalled Source = "installed"
	// SourceBundled is next to sandboxctl, or in ../libexec/sandboxctl.
	SourceBundled Source = "bundled"
)

// Found is a driver that there is.
type Found struct {
	Name string
	// Path is the executable, or the address of a running driver.
	Path   string
	Source Source
	// Version is that of the directory of an installed driver, else empty.
	Version string
	// Problem is why the driver would not be started.
	Problem error
}

const binaryPrefix = "sandboxctl-driver-"

var driverName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Discover lists all drivers by name, each at the place that it would be started
// from, and starts none.
func (h *Host) Discover() []Found {
	names := map[string]bool{}
	running, _ := h.running()
	for name := range running {
		names[name] = true
	}
	for name := range h.options.DevOverrides {
		names[name] = true
	}
	for name, config := range h.options.Drivers {
		if config.Path != "" {
			names[name] = true
		}
	}
	for _, entry := range entries(h.installDir()) {
		names[entry.Name()] = true
	}
	for _, dir := range h.bundledDirs() {
		for _, entry := range entries(dir) {
			if name, ok := h.nameOf(entry.Name()); ok {
				names[name] = true
			}
		}
	}
	var all []Found
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !driverName.MatchString(name) {
			continue
		}
		if found, ok := h.locate(name, running); ok {
			all = append(all, found)
		}
	}
	return all
}

// find looks for one driver. Its error is an *UnknownDriverError or about the name.
func (h *Host) find(name string) (Found, error) {
	if !driverName.MatchString(name) {
		return Found{}, errInvalidName(name)
	}
	running, err := h.running()
	if err != nil {
		return Found{}, err
	}
	if found, ok := h.locate(name, running); ok {
		return found, nil
	}
	return Found{}, h.unknown(name)
}

func (h *Host) locate(name string, running map[string]plugin.ReattachConfig) (Found, bool) {
	if attach, ok := running[name]; ok {
		return Found{Name: name, Path: attach.Address, Source: SourceReattach, Problem: checkReattach(name, attach)}, true
	}
	if path, ok := h.options.DevOverrides[name]; ok {
		return h.named(name, path, SourceDevOverride), true
	}
	if path := h.options.Drivers[name].Path; path != "" {
		return h.named(name, path, SourceConfigured), true
	}
	if found, ok := h.installed(name); ok {
		return found, true
	}
	for _, dir := range h.bundledDirs() {
		path := filepath.Join(dir, h.binary(name))
		if _, err := os.Lstat(path); err == nil {
			return Found{Name: name, Path: path, Source: SourceBundled, Problem: h.check(name, path)}, true
		}
	}
	return Found{}, false
}

// named is a driver whose place the user named.
func (h *Host) named(name, path string, source Source) Found {
	found := Found{Name: name, Path: path, Source: source}
	if !filepath.IsAbs(path) {
		found.Problem = &StartError{
			Driver: name, Path: path, Reason: ReasonConfiguration,
			Message: fmt.Sprintf("the path %q of driver %s is not absolute", path, name),
			Hint:    "write the whole path: sandboxctl runs in any directory, and runs no driver from the one it is in",
		}
		return found
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		found.Path = filepath.Join(path, h.binary(name))
	}
	found.Problem = h.check(name, found.Path)
	return found
}

// installed returns the highest version of a driver that is there for this platform.
func (h *Host) installed(name string) (Found, bool) {
	if h.options.DataDir == "" {
		return Found{}, false
	}
	var best Found
	for _, entry := range entries(filepath.Join(h.installDir(), name)) {
		version := entry.Name()
		path := filepath.Join(h.installDir(), name, version, h.goos+"_"+h.goarch, h.binary(name))
		if _, err := os.Lstat(path); err == nil && higher(version, best.Version) {
			best = Found{Name: name, Path: path, Source: SourceInstalled, Version: version}
		}
	}
	if best.Path == "" {
		return Found{}, false
	}
	best.Problem = h.check(name, best.Path)
	return best, true
}

// higher compares versions with or without a leading "v"; what is not a semantic
// version is lower than what is.
func higher(a, b string) bool {
	left, right := "v"+strings.TrimPrefix(a, "v"), "v"+strings.TrimPrefix(b, "v")
	if order := semver.Compare(left, right); order != 0 {
		return order > 0
	}
	return a > b
}

func (h *Host) installDir() string {
	if h.options.DataDir == "" {
		return ""
	}
	return filepath.Join(h.options.DataDir, "drivers")
}

// bundledDirs are where a package puts sandboxctl's own drivers. Executable is
// resolved first, because package managers link to it from elsewhere.
func (h *Host) bundledDirs() []string {
	executable, err := filepath.EvalSymlinks(h.options.Executable)
	if err != nil || !filepath.IsAbs(executable) {
		return nil
	}
	dir := filepath.Dir(executable)
	return []string{dir, filepath.Join(filepath.Dir(dir), "libexec", "sandboxctl")}
}

func (h *Host) binary(name string) string {
	if h.goos == "windows" {
		return binaryPrefix + name + ".exe"
	}
	return binaryPrefix + name
}

func (h *Host) nameOf(file string) (string, bool) {
	name, ok := strings.CutPrefix(file, binaryPrefix)
	if ok && h.goos == "windows" {
		name, ok = strings.CutSuffix(name, ".exe")
	}
	return name, ok && driverName.MatchString(name)
}

func (h *Host) unknown(name string) error {
	unknown := &UnknownDriverError{Name: name}
	for _, found := range h.Discover() {
		unknown.Known = append(unknown.Known, found.Name)
	}
	unknown.Hint = fmt.Sprintf("name its executable as drivers.%s.path in the configuration", name)
	if dir := h.installDir(); dir != "" {
		unknown.Hint += " or put it at " + filepath.Join(dir, name, "<version>", h.goos+"_"+h.goarch, h.binary(name))
	}
	return unknown
}

// entries lists a directory; one that cannot be read has none.
func entries(dir string) []os.DirEntry {
	if dir == "" {
		return nil
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	return list
}
