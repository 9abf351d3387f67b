//go:build linux

package osbdouble

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// handler mounts the same routes under /v1 and at the root, as the real server does.
func (d *Double) handler() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("POST /sandboxes", d.createSandbox)
	api.HandleFunc("GET /sandboxes", d.listSandboxes)
	api.HandleFunc("GET /sandboxes/{id}", d.getSandbox)
	api.HandleFunc("DELETE /sandboxes/{id}", d.deleteSandbox)
	api.HandleFunc("PATCH /sandboxes/{id}/metadata", d.patchMetadata)
	api.HandleFunc("POST /sandboxes/{id}/pause", d.pauseSandbox)
	api.HandleFunc("POST /sandboxes/{id}/resume", d.resumeSandbox)
	api.HandleFunc("POST /sandboxes/{id}/renew-expiration", d.renewSandbox)
	api.HandleFunc("GET /sandboxes/{id}/endpoints/{port}", d.endpoint)
	api.HandleFunc("/sandboxes/{id}/proxy/{port}/{rest...}", d.proxy)
	api.HandleFunc("/sandboxes/{id}/network-policy", d.networkPolicy)
	api.HandleFunc("GET /sandboxes/{id}/diagnostics/{kind}", d.diagnostics)
	api.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	root := http.NewServeMux()
	root.Handle("/v1/", http.StripPrefix("/v1", api))
	root.Handle("/", api)
	root.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "healthy"})
	})
	return d.guarded(root)
}

// guarded logs, lets the test answer first, and asks for the API key except on the open routes.
func (d *Double) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.requests = append(d.requests, r.Method+" "+r.URL.Path)
		d.mu.Unlock()
		k := d.settings()
		w.Header().Set("Date", time.Now().Add(k.ClockSkew).UTC().Format(http.TimeFormat))
		if id := r.Header.Get("X-Request-ID"); id != "" {
			w.Header().Set("X-Request-ID", id)
		} else {
			w.Header().Set("X-Request-ID", newUUID())
		}
		if k.Intercept != nil && k.Intercept(w, r) {
			return
		}
		open := r.URL.Path == "/health" || strings.Contains(r.URL.Path, "/proxy/")
		if key := r.Header.Get("OPEN-SANDBOX-API-KEY"); k.APIKey != "" && !open && key != k.APIKey {
			code, text := "INVALID_API_KEY", "Authentication credentials are invalid."
			if key == "" {
				code, text = "MISSING_API_KEY", "Authentication credentials are missing. Provide API key via OPEN-SANDBOX-API-KEY header."
			}
			writeJSON(w, http.StatusUnauthorized, map[string]string{"code": code, "message": text})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// fail answers with a domain error.
func (d *Double) fail(w http.ResponseWriter, status int, code, format string, args ...any) {
	body := map[string]string{"code": code, "message": fmt.Sprintf(format, args...)}
	if d.settings().WrapErrors {
		writeJSON(w, status, map[string]any{"detail": body})
		return
	}
	writeJSON(w, status, body)
}

// violation is one entry of a 422 answer.
type violation struct {
	Type  string `json:"type"`
	Loc   []any  `json:"loc"`
	Msg   string `json:"msg"`
	Input any    `json:"input"`
}

func unprocessable(w http.ResponseWriter, v ...violation) {
	writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": v})
}

// intParam reads a bounded query parameter and answers 422 when it is out of bounds.
func intParam(w http.ResponseWriter, r *http.Request, name string, fallback, low, high int) (int, bool) {
	raw := r.URL.Query().Get(name)
	if raw == "" {
		return fallback, true
	}
	n, err := strconv.Atoi(raw)
	if err != nil {
		unprocessable(w, violation{"int_parsing", []any{"query", name}, "Input should be a valid integer, unable to parse string as an integer", raw})
		return 0, false
	}
	if n < low {
		unprocessable(w, violation{"greater_than_equal", []any{"query", name}, fmt.Sprintf("Input should be greater than or equal to %d", low), raw})
		return 0, false
	}
	if n > high {
		unprocessable(w, violation{"less_than_equal", []any{"query", name}, fmt.Sprintf("Input should be less than or equal to %d", high), raw})
		return 0, false
	}
	return n, true
}
