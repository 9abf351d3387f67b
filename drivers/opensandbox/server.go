package opensandbox

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// server is the lifecycle interface.
type server struct {
	*clients
	base     *url.URL
	apiKey   string
	useProxy bool
}

func newServer(s settings) (*server, error) {
	c, err := newClients(s.caPEM)
	if err != nil {
		return nil, err
	}
	return &server{clients: c, base: s.endpoint, apiKey: s.apiKey, useProxy: s.useProxy}, nil
}

// createRequest holds the documented fields that are used; compatible servers refuse others.
type createRequest struct {
	Image          imageSpec         `json:"image"`
	Entrypoint     []string          `json:"entrypoint"`
	Timeout        int64             `json:"timeout,omitempty"` // seconds; absent never expires
	ResourceLimits map[string]string `json:"resourceLimits"`
	Env            map[string]string `json:"env,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	NetworkPolicy  *networkPolicy    `json:"networkPolicy,omitempty"`
}

type imageSpec struct {
	URI string `json:"uri"`
}

// sandboxRecord is a sandbox as the server shows it.
type sandboxRecord struct {
	ID     string     `json:"id"`
	Image  *imageSpec `json:"image"`
	Status struct {
		State, Reason, Message string
	} `json:"status"`
	Metadata  map[string]string `json:"metadata"`
	ExpiresAt *time.Time        `json:"expiresAt"`
	CreatedAt time.Time         `json:"createdAt"`

	// clock is how far the server's clock is ahead of ours.
	clock time.Duration
}

// call prepares a request to the server itself.
func (s *server) call(method, what string, path ...string) call {
	return call{method: method, what: what, url: s.base.JoinPath(append([]string{"v1", "sandboxes"}, path...)...), header: s.header()}
}

func (s *server) header() http.Header {
	h := http.Header{}
	if s.apiKey != "" {
		h.Set(apiKeyHeader, s.apiKey)
	}
	return h
}

func (s *server) create(ctx context.Context, req createRequest) (*sandboxRecord, error) {
	k := s.call(http.MethodPost, "create the sandbox")
	k.body = req
	var out sandboxRecord
	header, err := s.do(ctx, k, &out)
	if err != nil {
		return nil, err
	}
	if out.ID == "" {
		return nil, plugin.Errorf(plugin.KindInternal, "cannot create the sandbox: %s answered without an id", s.base.Host)
	}
	out.clock = clockOf(header)
	return &out, nil
}

func (s *server) get(ctx context.Context, id string) (*sandboxRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	var out sandboxRecord
	header, err := s.do(ctx, s.call(http.MethodGet, "look at sandbox "+id, id), &out)
	out.clock = clockOf(header)
	return &out, err
}

// clockOf is how far the server's clock is ahead, to a second, or zero when it is not known or close.
func clockOf(h http.Header) time.Duration {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	if ahead := time.Until(at.Add(500 * time.Millisecond)); ahead.Abs() > 3*time.Second {
		return ahead
	}
	return 0
}

// expires is the time of expiry by our own clock, zero for never.
func (r *sandboxRecord) expires() time.Time {
	if r.ExpiresAt == nil {
		return time.Time{}
	}
	return r.ExpiresAt.Add(-r.clock).UTC()
}

// delete removes a sandbox; one that is gone is told by false. A removal that is under way already fails with 500 on
// Docker, so it is asked for again until the sandbox is gone.
func (s *server) delete(ctx context.Context, id string) (removed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*unaryTimeout)
	defer cancel()
	for try := 1; ; try++ {
		_, err = s.do(ctx, s.call(http.MethodDelete, "remove sandbox "+id, id), nil)
		a := answerOf(err)
		switch {
		case plugin.KindOf(err) == plugin.KindNotFound:
			return false, nil
		case a == nil || a.code != "SANDBOX_DELETE_FAILED" || try == deleteTries:
			return err == nil, err
		}
		if !pause(ctx, time.Duration(try)*200*time.Millisecond) {
			return false, err
		}
	}
}

const deleteTries = 6

func (s *server) renew(ctx context.Context, id string, expires time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	k := s.call(http.MethodPost, "renew sandbox "+id, id, "renew-expiration")
	k.body = map[string]string{"expiresAt": expires.UTC().Format(time.RFC3339)}
	_, err := s.do(ctx, k, nil)
	return err
}

func (s *server) patchMetadata(ctx context.Context, id string, changes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	k := s.call(http.MethodPatch, "label sandbox "+id, id, "metadata")
	k.body = changes
	_, err := s.do(ctx, k, nil)
	return err
}

// list returns every sandbox that carries all of the labels, whatever its state.
func (s *server) list(ctx context.Context, labels map[string]string) ([]sandboxRecord, error) {
	filter := url.Values{}
	for k, v := range labels {
		filter.Set(k, v)
	}
	var all []sandboxRecord
	seen := map[string]bool{}
	for page := 1; ; page++ {
		records, more, err := s.listPage(ctx, filter, page)
		if err != nil {
			return nil, err
		}
		before := len(seen)
		for _, r := range records {
			// Pages shift when sandboxes come and go between two requests.
			if !seen[r.ID] && carries(r.Metadata, labels) {
				all = append(all, r)
			}
			seen[r.ID] = true
		}
		if !more || len(records) == 0 {
			return all, nil
		}
		if len(seen) == before {
			return nil, plugin.Errorf(plugin.KindInternal, "cannot list the sandboxes: %s repeats page %d and says that there are more", s.base.Host, page)
		}
	}
}

func (s *server) listPage(ctx context.Context, filter url.Values, page int) (records []sandboxRecord, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	k := s.call(http.MethodGet, "list the sandboxes")
	// The filter is one parameter whose value is itself a query string.
	k.url.RawQuery = url.Values{"metadata": {filter.Encode()}, "page": {strconv.Itoa(page)}, "pageSize": {"200"}}.Encode()
	var out struct {
		Items      []sandboxRecord
		Pagination struct{ HasNextPage bool }
	}
	header, err := s.do(ctx, k, &out)
	clock := clockOf(header)
	for i := range out.Items {
		out.Items[i].clock = clock
	}
	return out.Items, out.Pagination.HasNextPage, err
}

// carries repeats the filter on our side: a server that does not know it returns everything.
func carries(metadata, labels map[string]string) bool {
	for k, v := range labels {
		if metadata[k] != v {
			return false
		}
	}
	return true
}

// lastWords is the end of what a sandbox printed, for the error that says why it died.
func (s *server) lastWords(ctx context.Context, id string) string {
	ctx, cancel := context.WithTimeout(ctx, unaryTimeout)
	defer cancel()
	k := s.call(http.MethodGet, "read the log of sandbox "+id, id, "diagnostics", "logs")
	k.url.RawQuery = "tail=20"
	var text string
	if _, err := s.do(ctx, k, &text); err != nil {
		return ""
	}
	// The last line of many says why it died.
	if len(text) > 500 {
		text = "..." + text[len(text)-497:]
	}
	return plain([]byte(text))
}

// goneError says that a sandbox does not exist.
func goneError(id string) *plugin.Error {
	return plugin.NotFoundf("sandbox %s does not exist on the OpenSandbox server (any more)", id)
}

// asGone replaces the server's 404 about a sandbox by a sentence of ours.
func asGone(id string, err error) error {
	var typed *plugin.Error
	if errors.As(err, &typed) && typed.Kind == plugin.KindNotFound {
		gone := goneError(id)
		gone.Cause = err
		return gone
	}
	return err
}
