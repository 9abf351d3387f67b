// Package config finds and reads what the user has set: a file, the environment and
// flags, in rising order.
package config

import (
	"errors"
	"os/user"
	"path/filepath"
)

const appName = "sandboxctl"

// Paths are the places that sandboxctl uses, after the XDG base directory
// specification. A relative value in an XDG variable is ignored, as that demands.
type Paths struct {
	// ConfigFile is where the configuration is looked for.
	ConfigFile string
	// StateDir holds the ledger and the drivers' own state.
	StateDir string
	// DataDir holds installed drivers.
	DataDir string
}

// errNoHome is what a user without a home directory has to settle.
var errNoHome = errors.New("HOME is not set and this user has no home directory; set SANDBOXCTL_STATE_DIR to a directory of your own")

// FindPaths works with HOME unset: it then asks the user database.
func FindPaths(getenv func(string) string) (Paths, error) {
	home := homeDir(getenv)
	under := func(variable, fallback string) string {
		if dir := getenv(variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, appName)
		}
		if home == "" {
			return ""
		}
		return filepath.Join(home, fallback, appName)
	}
	paths := Paths{
		ConfigFile: getenv("SANDBOXCTL_CONFIG"),
		StateDir:   getenv("SANDBOXCTL_STATE_DIR"),
		DataDir:    under("XDG_DATA_HOME", ".local/share"),
	}
	if dir := under("XDG_CONFIG_HOME", ".config"); paths.ConfigFile == "" && dir != "" {
		paths.ConfigFile = filepath.Join(dir, "config.yaml")
	}
	if paths.StateDir == "" {
		paths.StateDir = under("XDG_STATE_HOME", ".local/state")
	}
	if paths.StateDir == "" {
		return Paths{}, errNoHome
	}
	absolute, err := filepath.Abs(paths.StateDir)
	paths.StateDir = absolute
	return paths, err
}

func homeDir(getenv func(string) string) string {
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return home
	}
	if home := getenv("USERPROFILE"); filepath.IsAbs(home) {
		return home
	}
	if current, err := user.Current(); err == nil && filepath.IsAbs(current.HomeDir) {
		return current.HomeDir
	}
	return ""
}
