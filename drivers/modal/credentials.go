package modal

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// profile is what matters here of a table in Modal's configuration file.
type profile struct {
	TokenID           string `toml:"token_id"`
	TokenSecret       string `toml:"token_secret"`
	OAuthRefreshToken string `toml:"oauth_refresh_token"`
	ServerURL         string `toml:"server_url"`
	Active            bool   `toml:"active"`
}

// findCredentials says where credentials come from. The SDK does not check that
// there are any before its first call, and then gives an error of no class. Where they
// would go is looked at too.
func findCredentials() (source string, err error) {
	fromFile, name, err := activeProfile()
	if err != nil {
		return "", err
	}
	if err := fromFile.exportAddress(); err != nil {
		return "", err
	}
	id := cmp.Or(os.Getenv("MODAL_TOKEN_ID"), fromFile.TokenID)
	secret := cmp.Or(os.Getenv("MODAL_TOKEN_SECRET"), fromFile.TokenSecret)
	refresh := cmp.Or(os.Getenv("MODAL_OAUTH_REFRESH_TOKEN"), fromFile.OAuthRefreshToken)
	if refresh == "" && (id == "" || secret == "") {
		return "", missingCredentials(id != "" || secret != "")
	}
	if os.Getenv("MODAL_TOKEN_ID") != "" || os.Getenv("MODAL_OAUTH_REFRESH_TOKEN") != "" {
		return "environment", nil
	}
	return "profile " + name, nil
}

// exportAddress gives the SDK the profile's address in the form that it takes, unless the
// environment has one, which goes first.
func (p profile) exportAddress() error {
	if p.ServerURL == "" || os.Getenv("MODAL_SERVER_URL") != "" {
		return nil
	}
	endpoint, err := cleanEndpoint(p.ServerURL)
	if err != nil {
		return plugin.Errorf(plugin.KindInvalid, "server_url in Modal's configuration file: %w", err)
	}
	return os.Setenv("MODAL_SERVER_URL", endpoint)
}

func missingCredentials(half bool) error {
	message := "there are no Modal credentials"
	if half {
		message = "half of the Modal credentials is missing: a token has an ID and a secret"
	}
	return plugin.Errorf(plugin.KindAuth, "%s", message).
		WithHint("set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or run `modal token new` to write them to Modal's configuration file")
}

// activeProfile reads the profile that the SDK would take.
func activeProfile() (profile, string, error) {
	path := os.Getenv("MODAL_CONFIG_PATH")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			// Without a home directory there is no file to read.
			return profile{}, "", nil
		}
		path = filepath.Join(home, ".modal.toml")
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return profile{}, "", nil
	}
	if err != nil {
		return profile{}, "", plugin.Errorf(plugin.KindAuth, "Modal's configuration file cannot be read: %w", err)
	}
	var profiles map[string]profile
	if err := toml.Unmarshal(content, &profiles); err != nil {
		// The parser's message quotes the file, which holds secrets.
		return profile{}, "", plugin.Errorf(plugin.KindAuth, "Modal's configuration file %s is not valid TOML", path)
	}
	return choose(profiles, os.Getenv("MODAL_PROFILE"))
}

func choose(profiles map[string]profile, wanted string) (profile, string, error) {
	if wanted != "" {
		found, ok := profiles[wanted]
		if !ok {
			// The SDK would go on as if the profile were empty.
			return profile{}, "", plugin.Errorf(plugin.KindAuth, "MODAL_PROFILE names the profile %q, which Modal's configuration file does not have", wanted)
		}
		return found, wanted, nil
	}
	var active []string
	for name, candidate := range profiles {
		if candidate.Active {
			active = append(active, name)
		}
	}
	switch len(active) {
	case 0:
		return profile{}, "", nil
	case 1:
		return profiles[active[0]], active[0], nil
	default:
		// The SDK would take one of them at random.
		return profile{}, "", plugin.Errorf(plugin.KindAuth, "Modal's configuration file has %d active profiles", len(active)).
			WithHint("set MODAL_PROFILE to the one to use")
	}
}
