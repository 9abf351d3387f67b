package opensandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// The variables OpenSandbox's own clients read.
const (
	envAPIKey   = "OPEN_SANDBOX_API_KEY"
	envDomain   = "OPEN_SANDBOX_DOMAIN"
	envProtocol = "OPEN_SANDBOX_PROTOCOL"
)

const configSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "endpoint": {"type": "string", "description": "address of the server, like https://sandboxes.example.com"},
    "use_server_proxy": {"type": "boolean", "description": "reach sandboxes through the server instead of directly"},
    "ca_file": {"type": "string", "description": "PEM file of certificate authorities to trust besides the system's"},
    "create_timeout": {"type": "string", "description": "how long a create may take, image pull included; 10m when absent"}
  }
}`

// defaultCreateTimeout leaves room for the pull of a large image, which the server does while the client waits.
const defaultCreateTimeout = 10 * time.Minute

// settings are the user's choices, checked.
type settings struct {
	endpoint      *url.URL // without /v1 and without a trailing slash
	apiKey        string
	useProxy      bool
	caPEM         []byte
	createTimeout time.Duration
}

// Configure checks the settings; it does not contact the server.
func (d *Driver) Configure(_ context.Context, config plugin.Config) ([]string, error) {
	s, err := readSettings(config)
	if err != nil {
		return nil, err
	}
	srv, err := newServer(s)
	if err != nil {
		return nil, err
	}
	d.settings, d.server = s, srv
	d.secret = newTokenSecret(config.StateDir)
	if config.Logger != nil {
		d.logger = config.Logger
	}
	return nil, nil
}

func readSettings(config plugin.Config) (settings, error) {
	var raw struct {
		Endpoint       string `json:"endpoint"`
		UseServerProxy bool   `json:"use_server_proxy"`
		CAFile         string `json:"ca_file"`
		CreateTimeout  string `json:"create_timeout"`
	}
	if len(config.Settings) > 0 {
		dec := json.NewDecoder(bytes.NewReader(config.Settings))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&raw); err != nil {
			return settings{}, plugin.Errorf(plugin.KindInvalid, "cannot read drivers.opensandbox in the configuration: %v", err)
		}
	}
	s := settings{apiKey: config.Environment[envAPIKey], useProxy: raw.UseServerProxy, createTimeout: defaultCreateTimeout}
	var err error
	if s.endpoint, err = endpointSetting(raw.Endpoint, config.Environment); err != nil {
		return settings{}, err
	}
	if strings.ContainsAny(s.apiKey, "\r\n") || s.apiKey != strings.TrimSpace(s.apiKey) {
		return settings{}, plugin.Errorf(plugin.KindAuth, "%s has spaces or line breaks around or in it", envAPIKey).
			WithHint("set it to the key alone")
	}
	if raw.CAFile != "" {
		if s.caPEM, err = os.ReadFile(raw.CAFile); err != nil {
			return settings{}, plugin.Errorf(plugin.KindInvalid, "cannot read drivers.opensandbox.ca_file: %w", err)
		}
	}
	if raw.CreateTimeout != "" {
		d, err := time.ParseDuration(raw.CreateTimeout)
		if err != nil || d <= 0 {
			return settings{}, plugin.Errorf(plugin.KindInvalid, "drivers.opensandbox.create_timeout is %q, want a duration like 10m", raw.CreateTimeout)
		}
		s.createTimeout = d
	}
	return s, nil
}

// endpointSetting is the server's address. There is no default: a client that falls back to localhost talks to
// whatever happens to listen there.
func endpointSetting(text string, env map[string]string) (*url.URL, error) {
	name := "drivers.opensandbox.endpoint"
	if text == "" && env[envDomain] != "" {
		name = envDomain
		protocol := env[envProtocol]
		if protocol == "" {
			protocol = "http"
		}
		text = protocol + "://" + env[envDomain]
	}
	if text == "" {
		return nil, plugin.Errorf(plugin.KindAuth, "the address of the OpenSandbox server is not set").
			WithHint("set drivers.opensandbox.endpoint in the configuration, or %s, e.g. to localhost:8080", envDomain)
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, plugin.Errorf(plugin.KindInvalid, "%s is %q, want an address like https://sandboxes.example.com", name, withoutUser(text))
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
	return u, nil
}

// withoutUser hides what may be a password in something that should be an address.
func withoutUser(text string) string {
	if at := strings.LastIndex(text, "@"); at >= 0 {
		return "..." + text[at:]
	}
	return text
}
