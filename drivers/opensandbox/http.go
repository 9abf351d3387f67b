package opensandbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	dialTimeout = 10 * time.Second
	// unaryTimeout bounds a call that is not a create.
	unaryTimeout = 30 * time.Second
	// maxAnswer bounds the body of a unary answer.
	maxAnswer = 16 << 20
	// tries is how often an idempotent call is made in all.
	tries = 3
)

// apiKeyHeader authenticates to the server. It must never reach a sandbox.
const apiKeyHeader = "OPEN-SANDBOX-API-KEY"

// clients are the two ways to make a request: unary calls are short and share connections; streams last as long as
// a command, so nothing but the wait for the first byte is bounded, and a stale pooled connection must not be hit.
type clients struct {
	unary, stream *http.Client
}

func newClients(caPEM []byte) (*clients, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(caPEM) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(caPEM) {
			return nil, plugin.Errorf(plugin.KindInvalid, "drivers.opensandbox.ca_file holds no PEM certificate")
		}
		tlsConfig.RootCAs = pool
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := func() *http.Transport {
		return &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: tlsConfig.Clone(),
			TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: 15 * time.Second,
		}
	}
	stream := transport()
	stream.DisableKeepAlives = true
	stream.ResponseHeaderTimeout = unaryTimeout
	// A redirect could carry a key or a token to another host.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &clients{
		unary:  &http.Client{Transport: transport(), CheckRedirect: stay},
		stream: &http.Client{Transport: stream, CheckRedirect: stay},
	}, nil
}

// call is one unary request.
type call struct {
	method string
	url    *url.URL
	header http.Header
	body   any // marshalled as JSON when not nil
	// what names the call in errors: "create the sandbox".
	what string
}

// do makes the call and decodes a JSON answer into out, unless it is nil. GET and DELETE are repeated when the
// answer is lost or says to come back; anything else only when it never left this machine, since a request that
// was sent may have been carried out.
func (c *clients) do(ctx context.Context, k call, out any) (http.Header, error) {
	var payload []byte
	if k.body != nil {
		var err error
		if payload, err = json.Marshal(k.body); err != nil {
			return nil, plugin.Errorf(plugin.KindInternal, "cannot encode the request to %s: %w", k.what, err)
		}
	}
	idempotent := k.method == http.MethodGet || k.method == http.MethodDelete
	for try := 1; ; try++ {
		header, err := c.once(ctx, k, payload, out)
		if err == nil || try == tries || ctx.Err() != nil || !retryable(err, idempotent) {
			return header, err
		}
		if !pause(ctx, retryDelay(err, try)) {
			return header, err
		}
	}
}

func (c *clients) once(ctx context.Context, k call, payload []byte, out any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, k.method, k.url.String(), bytes.NewReader(payload))
	if err != nil {
		return nil, plugin.Errorf(plugin.KindInternal, "cannot %s: %w", k.what, err)
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.unary.Do(req)
	if err != nil {
		return nil, transportError(k.what, k.url, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode >= 300 {
		return resp.Header, answerError(k.what, k.url, resp, data)
	}
	if err != nil {
		return resp.Header, transportError(k.what, k.url, err)
	}
	if out == nil {
		return resp.Header, nil
	}
	if text, ok := out.(*string); ok {
		*text = string(data)
		return resp.Header, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return resp.Header, plugin.Errorf(plugin.KindInternal, "cannot %s: the answer of %s is not what an OpenSandbox server sends: %w", k.what, k.url.Host, err).
			WithHint("check that the endpoint is an OpenSandbox server and not another service")
	}
	return resp.Header, nil
}

// retryable says whether a failed call may be made again.
func retryable(err error, idempotent bool) bool {
	if neverSent(err) {
		return true
	}
	if !idempotent {
		return false
	}
	var answered *answer
	if errors.As(err, &answered) {
		switch answered.status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err)
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "read" && !op.Timeout()
}

// neverSent is an error of connecting: no byte of the request has left.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func retryDelay(err error, try int) time.Duration {
	var typed *plugin.Error
	if errors.As(err, &typed) && typed.RetryAfter > 0 {
		return min(typed.RetryAfter, 10*time.Second)
	}
	return 150 * time.Millisecond << (try - 1)
}

// pause waits, and reports false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
