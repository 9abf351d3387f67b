package opensandbox

import (
	"context"
	"net/http"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// CheckHealth asks the server for its health and then, with the key, for a list.
func (d *Driver) CheckHealth(ctx context.Context) []plugin.Check {
	if d.server == nil {
		return []plugin.Check{{Name: "configuration", Status: plugin.CheckFailed, Detail: "the driver has not been configured"}}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	began := time.Now()
	health := call{method: http.MethodGet, what: "ask for the server's health", url: d.server.base.JoinPath("health")}
	if _, err := d.server.do(ctx, health, nil); err != nil {
		return []plugin.Check{failed("server", err)}
	}
	checks := []plugin.Check{{
		Name: "server", Status: plugin.CheckOK,
		Detail: d.server.base.String() + " answers in " + time.Since(began).Round(time.Millisecond).String(),
	}}
	if _, _, err := d.server.listPage(ctx, nil, 1); err != nil {
		return append(checks, failed("API key", err))
	}
	key := plugin.Check{Name: "API key", Status: plugin.CheckOK, Detail: "accepted"}
	if d.settings.apiKey == "" {
		key = plugin.Check{
			Name: "API key", Status: plugin.CheckWarning, Detail: "the server asks for none: whoever reaches it can run code there",
			Fix: "set server.api_key in the server's configuration and " + envAPIKey + " here",
		}
	}
	return append(checks, key)
}

func failed(name string, err error) plugin.Check {
	return plugin.Check{Name: name, Status: plugin.CheckFailed, Detail: err.Error(), Fix: hintOf(err)}
}
