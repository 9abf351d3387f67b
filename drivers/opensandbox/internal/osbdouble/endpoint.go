//go:build linux

package osbdouble

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/execd"
)

func (d *Double) endpoint(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil {
		unprocessable(w, violation{"int_parsing", []any{"path", "port"}, "Input should be a valid integer, unable to parse string as an integer", r.PathValue("port")})
		return
	}
	b := d.find(w, r)
	if b == nil {
		return
	}
	viaServer := r.URL.Query().Get("use_server_proxy") == "true"
	if r.URL.Query().Get("expires") != "" {
		d.fail(w, http.StatusBadRequest, "SANDBOX::API_NOT_SUPPORTED", "Signed routes (expires parameter) are not supported when runtime.type='docker'.")
		return
	}
	if port < 1 || port > 65535 {
		d.fail(w, http.StatusBadRequest, "DOCKER::INVALID_PORT", "Port must be between 1 and 65535.")
		return
	}
	out := map[string]any{"endpoint": b.address(port)}
	switch {
	case viaServer:
		out["endpoint"] = r.Host + "/sandboxes/" + b.id + "/proxy/" + strconv.Itoa(port)
	case d.settings().DeadEndpoints:
		out["endpoint"] = "127.0.0.1:1/proxy/" + strconv.Itoa(port)
	}
	if port == egress.Port && b.sidecar != nil {
		out["headers"] = map[string]string{"OPENSANDBOX-EGRESS-AUTH": b.sidecar.Token}
	}
	writeJSON(w, http.StatusOK, out)
}

// address is where a port of the sandbox is reached directly: through execd's own proxy, the sidecar's port included,
// which is why the sidecar cannot be reached without execd's token.
func (b *sandbox) address(port int) string {
	return b.execdAddr + "/proxy/" + strconv.Itoa(port)
}

// proxy carries requests and websockets to a port of the sandbox.
func (d *Double) proxy(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil {
		unprocessable(w, violation{"int_parsing", []any{"path", "port"}, "Input should be a valid integer, unable to parse string as an integer", r.PathValue("port")})
		return
	}
	if r.Method == http.MethodHead || r.Method == http.MethodOptions {
		writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
		return
	}
	select {
	case <-b.guest.Done():
		d.fail(w, http.StatusInternalServerError, "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE", "Sandbox is not running.")
		return
	default:
	}
	unreachable := func(w http.ResponseWriter) {
		d.fail(w, http.StatusBadGateway, "GENERAL::UNKNOWN_ERROR", "Could not connect to the backend sandbox endpoint.")
	}
	if time.Now().Before(b.readyAt) {
		unreachable(w)
		return
	}
	host, base, _ := strings.Cut(b.address(port), "/")
	if port == execd.Port {
		base = ""
	}
	// Without it an answer that begins early cuts a request whose end has not been read.
	_ = http.NewResponseController(w).EnableFullDuplex()
	rp := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(&url.URL{Scheme: "http", Host: host})
			pr.Out.URL.Path = strings.TrimSuffix("/"+base, "/") + "/" + r.PathValue("rest")
			for _, secret := range []string{"Authorization", "Cookie", "OPEN-SANDBOX-API-KEY"} {
				pr.Out.Header.Del(secret)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { unreachable(w) },
	}
	rp.ServeHTTP(w, r)
}
