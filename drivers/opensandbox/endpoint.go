package opensandbox

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Ports inside a sandbox.
const (
	execdPort  = 44772
	egressPort = 18080
)

// endpoint is where a port of a sandbox can be reached, and what must be sent along.
type endpoint struct {
	url    *url.URL
	header http.Header
	direct bool
}

// endpoint asks the server for the address of a port. It may change when the server or the sandbox restarts, so it
// is asked for each time it is needed.
func (s *server) endpoint(ctx context.Context, id string, port int) (*endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	k := s.call(http.MethodGet, "find the address of sandbox "+id, id, "endpoints", strconv.Itoa(port))
	if s.useProxy {
		k.url.RawQuery = "use_server_proxy=true"
	}
	var out struct {
		Endpoint string            `json:"endpoint"`
		Headers  map[string]string `json:"headers"`
	}
	if _, err := s.do(ctx, k, &out); err != nil {
		return nil, asGone(id, err)
	}
	// The answer has no scheme; the server's own is the best guess.
	text := out.Endpoint
	if !strings.Contains(text, "://") {
		text = s.base.Scheme + "://" + text
	}
	u, err := url.Parse(strings.TrimSuffix(text, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, plugin.Errorf(plugin.KindInternal, "the server gave %q as the address of sandbox %s, which is no address", out.Endpoint, id)
	}
	e := &endpoint{url: u, header: http.Header{}, direct: !s.useProxy}
	for name, value := range out.Headers {
		e.header.Set(name, value)
	}
	// Newer servers ask for the key on their proxy routes, too. It goes to the server's own host and no other.
	if s.useProxy && s.apiKey != "" && u.Scheme == s.base.Scheme && u.Host == s.base.Host {
		e.header.Set(apiKeyHeader, s.apiKey)
	}
	return e, nil
}

// call prepares a request to the endpoint.
func (e *endpoint) call(method, what string, path ...string) call {
	return call{method: method, what: what, url: e.url.JoinPath(path...), header: e.header.Clone()}
}

// unreachable says which address was tried, and what else can be: sandbox ports are often published where only the
// server can reach them.
func (e *endpoint) unreachable(err error) error {
	if plugin.KindOf(err) != plugin.KindUnavailable {
		return err
	}
	typed := plugin.Errorf(plugin.KindUnavailable, "the sandbox cannot be reached at %s, the address the server gave: %w", e.url.Host, err)
	if e.direct {
		typed.Hint = "if that address is not reachable from here, set drivers.opensandbox.use_server_proxy to true"
	} else {
		typed.Hint = "the server's proxy cannot reach the sandbox; it may be paused or stopped"
	}
	return typed
}
