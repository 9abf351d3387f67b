package modal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const defaultApp = "sandboxctl"

// settings is the driver's section of the user's configuration.
type settings struct {
	// App is the Modal app that holds the sandboxes; it is made when missing.
	App string `json:"app"`
	// Environment is the Modal environment; empty means the profile's.
	Environment string `json:"environment"`
	// Endpoint replaces Modal's address.
	Endpoint string `json:"endpoint"`
	// HostMatch set to "sni" is the option of the same name for every create.
	HostMatch string `json:"host_match"`
}

const settingsSchema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "app": {"type": "string", "description": "the Modal app that holds the sandboxes, made when missing (default: sandboxctl)"},
    "environment": {"type": "string", "description": "the Modal environment (default: the profile's)"},
    "endpoint": {"type": "string", "description": "the address of Modal's API, https://HOST[:PORT]"},
    "host_match": {"enum": ["sni"], "description": "accept TLS-SNI matching for --allow-host on every create"}
  }
}`

// environment lists what the SDK reads, and what its connections need.
func environment() []plugin.EnvVar {
	return []plugin.EnvVar{
		{Name: "MODAL_TOKEN_ID", Secret: true, Description: "ID of a Modal token"},
		{Name: "MODAL_TOKEN_SECRET", Secret: true, Description: "secret of that token"},
		{Name: "MODAL_OAUTH_REFRESH_TOKEN", Secret: true, Description: "OAuth refresh token, instead of a Modal token"},
		{Name: "MODAL_OAUTH_CLIENT_ID", Secret: true, Description: "OAuth client ID"},
		{Name: "MODAL_OAUTH_CLIENT_SECRET", Secret: true, Description: "OAuth client secret"},
		{Name: "MODAL_OAUTH_JWT_KEY", Secret: true, Description: "OAuth client key, instead of a client secret"},
		{Name: "MODAL_CONFIG_PATH", Description: "Modal's configuration file (default: .modal.toml in the home directory)"},
		{Name: "MODAL_PROFILE", Description: "profile in that file (default: the active one)"},
		{Name: "MODAL_ENVIRONMENT", Description: "Modal environment"},
		{Name: "MODAL_SERVER_URL", Description: "address of Modal's API"},
		{Name: "MODAL_IMAGE_BUILDER_VERSION", Description: "version of Modal's image builder"},
		{Name: "SSL_CERT_FILE", Description: "trusted certificates"},
		{Name: "SSL_CERT_DIR", Description: "directory of trusted certificates"},
		{Name: "HTTPS_PROXY", Secret: true, Description: "proxy for the connection to Modal"},
		{Name: "NO_PROXY", Description: "addresses that need no proxy"},
	}
}

// Configure takes the settings. It makes no call.
func (d *Driver) Configure(_ context.Context, config plugin.Config) ([]string, error) {
	parsed, err := parseSettings(config.Settings)
	if err != nil {
		return nil, err
	}
	if config.StateDir == "" {
		return nil, plugin.Errorf(plugin.KindInvalid, "the modal driver needs a state directory, and was given none")
	}
	d.config, d.settings = config, parsed
	return nil, nil
}

func parseSettings(raw []byte) (settings, error) {
	parsed := settings{App: defaultApp}
	if len(bytes.TrimSpace(raw)) == 0 {
		return parsed, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parsed); err != nil {
		return settings{}, plugin.Errorf(plugin.KindInvalid, "the settings under drivers.modal cannot be read: %w", err)
	}
	parsed.App = cmp.Or(parsed.App, defaultApp)
	if parsed.HostMatch != "" && parsed.HostMatch != hostMatchSNI {
		return settings{}, plugin.Errorf(plugin.KindInvalid, "drivers.modal.host_match is %q; it can only be %q", parsed.HostMatch, hostMatchSNI)
	}
	endpoint, err := cleanEndpoint(parsed.Endpoint)
	if err != nil {
		return settings{}, err
	}
	parsed.Endpoint = endpoint
	return parsed, nil
}

// cleanEndpoint brings an address into the one form that the SDK takes: a
// trailing slash makes it fail with "unknown port".
func cleanEndpoint(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	if strings.Contains(address, "@") {
		// It may hold a password, so it is not repeated.
		return "", plugin.Errorf(plugin.KindInvalid, "the Modal endpoint names a user; it has the form https://HOST[:PORT]")
	}
	trimmed := strings.TrimRight(address, "/")
	parsed, err := url.Parse(trimmed)
	if err != nil || parsed.Host == "" || parsed.Path != "" || parsed.RawQuery != "" || parsed.Fragment != "" || (parsed.Scheme != "https" && parsed.Scheme != "http") {
		return "", plugin.Errorf(plugin.KindInvalid, "the Modal endpoint %q is not an address of the form https://HOST[:PORT]", address)
	}
	if parsed.Scheme == "http" && !isLoopback(parsed.Hostname()) {
		return "", plugin.Errorf(plugin.KindInvalid, "the Modal endpoint %s would get the token unencrypted; write https://", trimmed)
	}
	return trimmed, nil
}

// isLoopback knows the hosts that stay on this machine.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// exportEnvironment puts what Configure was given where the SDK looks for it.
// The SDK takes most of it from nowhere but the process's environment.
func (d *Driver) exportEnvironment() error {
	values := make(map[string]string, len(d.config.Environment)+2)
	for name, value := range d.config.Environment {
		values[name] = value
	}
	if d.settings.Endpoint != "" {
		values["MODAL_SERVER_URL"] = d.settings.Endpoint
	}
	endpoint, err := cleanEndpoint(values["MODAL_SERVER_URL"])
	if err != nil {
		return err
	}
	if endpoint != "" {
		values["MODAL_SERVER_URL"] = endpoint
	}
	if _, err := os.UserHomeDir(); err != nil && values["MODAL_CONFIG_PATH"] == "" {
		// The SDK fails without a home directory although it needs no file.
		values["MODAL_CONFIG_PATH"] = filepath.Join(d.config.StateDir, "no-modal.toml")
	}
	for name, value := range values {
		if err := os.Setenv(name, value); err != nil {
			return plugin.Errorf(plugin.KindInvalid, "the variable %s cannot be set: %w", name, err)
		}
	}
	return nil
}
