package config

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// DefaultTTL is the lease of a sandbox for which none was named.
const DefaultTTL = time.Hour

// Config is what is in force for one run.
type Config struct {
	Paths
	Driver string
	Output string
	Color  string
	// TTL is zero when sandboxes shall not expire.
	TTL time.Duration
	// Debug asks for the log of sandboxctl and its driver on stderr.
	Debug        bool
	Drivers      map[string]Driver
	DevOverrides map[string]string
}

// Load reads the file, the environment and the changed flags of the running command.
func Load(getenv func(string) string, flags *pflag.FlagSet) (*Config, error) {
	paths, err := FindPaths(getenv)
	if err != nil {
		return nil, err
	}
	read, err := readFile(paths.ConfigFile, getenv("SANDBOXCTL_CONFIG") != "")
	if err != nil {
		return nil, err
	}
	// One viper per run: its global would carry one command's flags into another's.
	settings := viper.New()
	for _, name := range []string{"driver", "output", "color", "ttl", "profile", "debug"} {
		// viper reads the process's environment itself; ours may be a test's.
		if value := getenv("SANDBOXCTL_" + strings.ToUpper(name)); value != "" {
			settings.Set(name, value)
		}
		if flag := flags.Lookup(name); flag != nil && flag.Changed {
			settings.Set(name, flag.Value.String())
		}
	}
	scalars, err := read.profile(settings.GetString("profile"))
	if err != nil {
		return nil, err
	}
	defaults := map[string]string{"driver": defaultDriver(runtime.GOOS), "output": "text", "color": "auto", "ttl": DefaultTTL.String()}
	for name, value := range map[string]string{"driver": scalars.Driver, "output": scalars.Output, "color": scalars.Color, "ttl": scalars.TTL} {
		if value != "" {
			settings.SetDefault(name, value)
		} else {
			settings.SetDefault(name, defaults[name])
		}
	}
	return build(paths, settings, read)
}

// defaultDriver is the one that needs nothing: gVisor on Linux, elsewhere Docker's
// microVMs, which run on developers' machines.
func defaultDriver(goos string) string {
	if goos == "linux" {
		return "local"
	}
	return "sbx"
}

func build(paths Paths, settings *viper.Viper, read *file) (*Config, error) {
	config := &Config{
		Paths: paths, Driver: settings.GetString("driver"), Output: settings.GetString("output"), Color: settings.GetString("color"),
		Debug: settings.GetBool("debug"), Drivers: read.Drivers, DevOverrides: read.DevOverrides,
	}
	for _, choice := range []struct {
		setting, value string
		from           []string
	}{
		{"output", config.Output, []string{"text", "json"}},
		{"color", config.Color, []string{"auto", "always", "never"}},
	} {
		if !slices.Contains(choice.from, choice.value) {
			return nil, fmt.Errorf("%s is %q; take %s", choice.setting, choice.value, strings.Join(choice.from, " or "))
		}
	}
	ttl, err := ParseDuration("ttl", settings.GetString("ttl"))
	config.TTL = ttl
	return config, err
}

// ParseDuration reads a duration: Go's syntax, or a plain number of seconds.
func ParseDuration(what, text string) (time.Duration, error) {
	duration, err := time.ParseDuration(text)
	if err != nil {
		duration, err = time.ParseDuration(text + "s")
	}
	if err != nil || duration < 0 {
		return 0, fmt.Errorf("%s is %q; write a duration such as 90s, 15m or 2h", what, text)
	}
	return duration, nil
}
