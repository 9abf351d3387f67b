package host

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// passedOn are the variables that every driver gets: what a process needs to find
// its files and its way to the network. A name that ends in "*" is a prefix. All
// else stays here: the user's secrets, and PLUGIN_* and our cookie, which make
// go-plugin fail or panic when sandboxctl runs under another program that uses it.
var passedOn = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "TMPDIR", "XDG_*", "NO_COLOR",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
}

// passedOnWindows are needed there in addition: nothing starts without SYSTEMROOT.
var passedOnWindows = []string{
	"SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "SYSTEMDRIVE", "TEMP", "TMP", "USERNAME", "USERPROFILE",
	"HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES",
}

// environ is the user's environment.
type environ struct {
	values map[string]string
	// fold says that upper and lower case make no different names, as on Windows.
	fold    bool
	allowed []string
}

func newEnviron(pairs []string, goos string) environ {
	env := environ{values: map[string]string{}, fold: goos == "windows", allowed: passedOn}
	if env.fold {
		env.allowed = slices.Concat(passedOn, passedOnWindows)
	}
	for _, pair := range pairs {
		// The first byte is skipped because Windows has names such as "=C:".
		if at := strings.Index(pair[min(1, len(pair)):], "="); at >= 0 {
			env.values[env.key(pair[:at+1])] = pair[at+2:]
		}
	}
	return env
}

func (e environ) key(name string) string {
	if e.fold {
		return strings.ToUpper(name)
	}
	return name
}

func (e environ) lookup(name string) (string, bool) {
	value, ok := e.values[e.key(name)]
	return value, ok
}

// forDriver returns the variables that every driver may have.
func (e environ) forDriver() []string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(e.values)) {
		if slices.ContainsFunc(e.allowed, func(pattern string) bool { return matches(pattern, name) }) {
			pairs = append(pairs, name+"="+e.values[name])
		}
	}
	return pairs
}

// proxyPasswords are what the proxies' addresses, which every driver gets, must not
// show in a log: the password as it is written there, and as it is meant.
func (e environ) proxyPasswords() []string {
	var passwords []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		address, _ := e.lookup(name)
		user := address[:max(strings.LastIndexByte(address, '@'), 0)]
		if _, after, ok := strings.Cut(user, "://"); ok {
			user = after
		}
		_, written, ok := strings.Cut(user, ":")
		if !ok {
			continue
		}
		passwords = append(passwords, written)
		if meant, err := url.PathUnescape(written); err == nil && meant != written {
			passwords = append(passwords, meant)
		}
	}
	return passwords
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// declared returns the values of the variables that a driver wants to have and,
// apart from them, those that are secret. Names are mapped as the configuration
// says; a mapping for a variable that the driver does not know is refused, since it
// would be ignored.
func (e environ) declared(info plugin.Info, mapping map[string]string) (values map[string]string, secrets []string, err error) {
	values = map[string]string{}
	wanted := map[string]bool{}
	for _, variable := range info.Env {
		wanted[variable.Name] = true
		from := variable.Name
		if mapped, ok := mapping[variable.Name]; ok {
			from = mapped
		}
		value, ok := e.lookup(from)
		if !ok {
			continue
		}
		values[variable.Name] = value
		if variable.Secret {
			secrets = append(secrets, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mapping)) {
		if !wanted[name] {
			return nil, nil, fmt.Errorf("it does not use the variable %s", name)
		}
	}
	return values, secrets, nil
}
