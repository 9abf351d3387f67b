package opensandbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// answer is an HTTP answer that is not a success. It is the cause of the typed error.
type answer struct {
	status    int
	code      string // without the runtime's prefix: SANDBOX_NOT_FOUND
	message   string
	requestID string
}

func (a *answer) Error() string {
	text := fmt.Sprintf("HTTP %d", a.status)
	if a.code != "" {
		text += " " + a.code
	}
	if a.message != "" {
		text += ": " + a.message
	}
	if a.requestID != "" {
		text += " (request " + a.requestID + ")"
	}
	return text
}

// answerOf is the HTTP answer behind an error, nil when there was none.
func answerOf(err error) *answer {
	var a *answer
	errors.As(err, &a)
	return a
}

// parseAnswer reads the shapes in which servers, gateways, execd and the sidecar report errors.
func parseAnswer(status int, body []byte) *answer {
	a := &answer{status: status}
	var doc struct {
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &doc) != nil {
		a.message = plain(body)
	} else {
		a.code, a.message = doc.Code, doc.Message
		if a.message == "" && len(doc.Detail) > 0 {
			a.detail(doc.Detail)
		}
		if a.message == "" && len(doc.Error) > 0 && json.Unmarshal(doc.Error, &a.message) != nil {
			a.message = plain(doc.Error)
		}
	}
	if i := strings.LastIndex(a.code, "::"); i >= 0 {
		a.code = a.code[i+2:]
	}
	if a.message == "" {
		a.message = http.StatusText(status)
	}
	return a
}

// detail reads FastAPI's wrapper: an object, a list of violations, or a text.
func (a *answer) detail(raw json.RawMessage) {
	var object struct{ Code, Message string }
	if json.Unmarshal(raw, &object) == nil && object.Message != "" {
		a.code, a.message = object.Code, object.Message
		return
	}
	var violations []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	if json.Unmarshal(raw, &violations) == nil {
		texts := make([]string, 0, len(violations))
		for _, v := range violations {
			where := make([]string, 0, len(v.Loc))
			for _, part := range v.Loc {
				where = append(where, fmt.Sprint(part))
			}
			texts = append(texts, strings.Join(where, ".")+": "+v.Msg)
		}
		a.message = strings.Join(texts, "; ")
		return
	}
	_ = json.Unmarshal(raw, &a.message)
}

// plain is a text answer cut to what fits into a sentence; pages of HTML say nothing.
func plain(body []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(body), "?"))
	if strings.HasPrefix(text, "<") {
		return ""
	}
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "..."
	}
	return text
}

// answerError turns an answer into a typed error. What a 404 is about depends on the call, so callers refine it.
func answerError(what string, u *url.URL, resp *http.Response, body []byte) *plugin.Error {
	a := parseAnswer(resp.StatusCode, body)
	a.requestID = resp.Header.Get("X-Request-ID")
	err := plugin.Errorf(a.kind(), "cannot %s: %s answered %w", what, u.Host, a)
	switch {
	case a.status == http.StatusNotFound && err.Kind != plugin.KindNotFound:
		err.Hint = "the path is not known there: check that the endpoint is an OpenSandbox server"
	case a.status == http.StatusUnauthorized && a.code == "MISSING_API_KEY":
		err.Hint = "set " + envAPIKey
	case a.status == http.StatusUnauthorized && a.code == "INVALID_API_KEY":
		err.Hint = "the key in " + envAPIKey + " is not the server's"
	case a.status == http.StatusTooManyRequests:
		err.RetryAfter = retryAfter(resp.Header)
	case a.status >= 300 && a.status < 400:
		err.Hint = "the server redirects; set drivers.opensandbox.endpoint to " + resp.Header.Get("Location")
	}
	return err
}

// kind is the class of an answer. Of the two kinds of 404 only the one about a sandbox says that it is gone; the other
// is about the path, comes from whatever listens there, and must not make anybody forget a sandbox that lives.
func (a *answer) kind() plugin.Kind {
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return plugin.KindAuth
	case http.StatusNotFound:
		text := strings.ToLower(a.message)
		if strings.HasSuffix(a.code, "NOT_FOUND") || strings.Contains(text, "sandbox") && strings.Contains(text, "not found") {
			return plugin.KindNotFound
		}
		return plugin.KindUnavailable
	case http.StatusConflict:
		return plugin.KindConflict
	case http.StatusTooManyRequests:
		return plugin.KindRateLimited
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return plugin.KindInvalid
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return plugin.KindUnavailable
	}
	return plugin.KindInternal
}

func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// transportError is a request without an answer. A cancelled context stays recognisable.
func transportError(what string, u *url.URL, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	typed := plugin.Errorf(plugin.KindUnavailable, "cannot %s: no answer from %s: %w", what, u.Host, err)
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		record    tls.RecordHeaderError
		verify    *tls.CertificateVerificationError
		timeout   net.Error
	)
	switch {
	case errors.As(err, &authority):
		typed.Hint = "name the authority that signed its certificate in drivers.opensandbox.ca_file"
	case errors.As(err, &hostname):
		typed.Hint = "use the name in the server's certificate as the endpoint"
	case errors.As(err, &verify):
		typed.Hint = "the server's certificate cannot be verified"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		typed.Hint = "there is no TLS at this address; use http:// in the endpoint"
	case neverSent(err):
		typed.Hint = "check the address and that a server is running there"
	case errors.As(err, &timeout) && timeout.Timeout():
		typed.Hint = "it accepts connections but does not answer in time"
	}
	return typed
}
