//go:build linux

package osbdouble

import (
	"encoding/json"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
)

// find answers 404 for an unknown sandbox.
func (d *Double) find(w http.ResponseWriter, r *http.Request) *sandbox {
	d.mu.Lock()
	b := d.boxes[r.PathValue("id")]
	d.mu.Unlock()
	if b == nil {
		d.fail(w, http.StatusNotFound, "DOCKER::SANDBOX_NOT_FOUND", "Sandbox %s not found.", r.PathValue("id"))
	}
	return b
}

func (d *Double) show(w http.ResponseWriter, b *sandbox) {
	d.mu.Lock()
	v := b.view(true)
	d.mu.Unlock()
	writeJSON(w, http.StatusOK, v)
}

func (d *Double) getSandbox(w http.ResponseWriter, r *http.Request) {
	if b := d.find(w, r); b != nil {
		d.show(w, b)
	}
}

func (d *Double) deleteSandbox(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	d.mu.Lock()
	busy := b.removing
	b.removing = true
	d.mu.Unlock()
	if busy {
		d.fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_DELETE_FAILED",
			"Failed to delete sandbox container: 409 Client Error: Conflict (\"removal of container %s is already in progress\")", b.id)
		return
	}
	b.guest.Kill()
	d.remove(b.id)
	w.WriteHeader(http.StatusNoContent)
}

func (d *Double) listSandboxes(w http.ResponseWriter, r *http.Request) {
	page, ok := intParam(w, r, "page", 1, 1, 1<<31-1)
	if !ok {
		return
	}
	size, ok := intParam(w, r, "pageSize", 20, 1, 200)
	if !ok {
		return
	}
	if limit := d.settings().MaxPageSize; limit > 0 {
		size = min(size, limit)
	}
	wanted, err := url.ParseQuery(r.URL.Query().Get("metadata"))
	if err != nil {
		d.fail(w, http.StatusBadRequest, "INVALID_METADATA_FORMAT", "Invalid metadata format: %v", err)
		return
	}
	states := r.URL.Query()["state"]
	d.mu.Lock()
	var found []*sandbox
	for _, b := range d.boxes {
		if b.matches(wanted, states) {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *sandbox) int { return b.created.Compare(a.created) })
	total := len(found)
	pages := (total + size - 1) / size
	first := min((page-1)*size, total)
	items := []map[string]any{}
	for _, b := range found[first:min(first+size, total)] {
		items = append(items, b.view(true))
	}
	d.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"items": items, "pagination": map[string]any{
		"page": page, "pageSize": size, "totalItems": total, "totalPages": pages, "hasNextPage": page < pages,
	}})
}

func (b *sandbox) matches(metadata url.Values, states []string) bool {
	for key := range metadata {
		if v, ok := b.metadata[key]; !ok || v != metadata.Get(key) {
			return false
		}
	}
	state := b.status().State
	return len(states) == 0 || slices.ContainsFunc(states, func(s string) bool { return strings.EqualFold(s, state) })
}

func (d *Double) patchMetadata(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	var patch map[string]*string
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		d.fail(w, http.StatusBadRequest, "SANDBOX::INVALID_PARAMETER", "invalid patch: %v", err)
		return
	}
	merged := map[string]string{}
	d.mu.Lock()
	for k, v := range b.metadata {
		merged[k] = v
	}
	d.mu.Unlock()
	for k, v := range patch {
		if v == nil {
			delete(merged, k)
		} else {
			merged[k] = *v
		}
	}
	if text := checkLabels(merged); text != "" {
		d.fail(w, http.StatusBadRequest, "INVALID_METADATA_LABEL", "%s", text)
		return
	}
	d.mu.Lock()
	b.metadata = merged
	d.mu.Unlock()
	d.show(w, b)
}

func (d *Double) pauseSandbox(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	d.mu.Lock()
	state := b.status().State
	d.mu.Unlock()
	switch state {
	case "Running":
	case "Paused":
		d.fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_PAUSE_FAILED", "Failed to pause sandbox container: already paused")
		return
	default:
		d.fail(w, http.StatusConflict, "DOCKER::SANDBOX_NOT_RUNNING", "Sandbox is not in a running state.")
		return
	}
	if err := b.guest.Pause(); err != nil {
		d.fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_PAUSE_FAILED", "%v", err)
		return
	}
	d.mu.Lock()
	b.paused = true
	d.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

func (d *Double) resumeSandbox(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	d.mu.Lock()
	paused := b.paused
	d.mu.Unlock()
	if !paused {
		d.fail(w, http.StatusConflict, "DOCKER::SANDBOX_NOT_PAUSED", "Sandbox is not paused.")
		return
	}
	if err := b.guest.Resume(); err != nil {
		d.fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_RESUME_FAILED", "%v", err)
		return
	}
	d.mu.Lock()
	b.paused = false
	d.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

// renewSandbox accepts any future moment, an earlier one included, and keeps it in memory only.
func (d *Double) renewSandbox(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	var req struct {
		ExpiresAt *time.Time `json:"expiresAt"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.ExpiresAt == nil {
		unprocessable(w, violation{"missing", []any{"body", "expiresAt"}, "Field required", map[string]any{}})
		return
	}
	at := req.ExpiresAt.Add(-b.skew)
	d.mu.Lock()
	limited := !b.expiry.IsZero()
	d.mu.Unlock()
	if !limited {
		d.fail(w, http.StatusConflict, "DOCKER::INVALID_EXPIRATION", "Sandbox %s has no expiration.", b.id)
		return
	}
	if !at.After(time.Now()) {
		d.fail(w, http.StatusBadRequest, "DOCKER::INVALID_EXPIRATION", "New expiration time must be in the future.")
		return
	}
	d.mu.Lock()
	d.setExpiry(b, at)
	d.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"expiresAt": req.ExpiresAt})
}

// networkPolicy is the server-side view of the sidecar that newer releases have.
func (d *Double) networkPolicy(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	if b.sidecar == nil {
		d.fail(w, http.StatusNotFound, "SANDBOX::NETWORK_POLICY_NOT_FOUND", "Sandbox %s has no network policy.", b.id)
		return
	}
	rp := &httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) {
		pr.SetURL(&url.URL{Scheme: "http", Host: b.execdAddr})
		pr.Out.URL.Path = "/proxy/" + strconv.Itoa(egress.Port) + "/policy"
		pr.Out.Header.Set("X-EXECD-ACCESS-TOKEN", b.execdToken)
		pr.Out.Header.Set("OPENSANDBOX-EGRESS-AUTH", b.sidecar.Token)
	}}
	rp.ServeHTTP(w, r)
}

func (d *Double) diagnostics(w http.ResponseWriter, r *http.Request) {
	b := d.find(w, r)
	if b == nil {
		return
	}
	if r.URL.Query().Get("scope") != "" {
		d.fail(w, http.StatusNotImplemented, "DIAGNOSTICS_NOT_IMPLEMENTED", "Diagnostics are not implemented.")
		return
	}
	d.mu.Lock()
	st := b.status()
	d.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Deprecation", "true")
	if r.PathValue("kind") == "logs" {
		_, _ = w.Write([]byte(b.guest.Log()))
		return
	}
	_, _ = w.Write([]byte("Sandbox: " + b.id + "\nState: " + st.State + " (" + st.Message + ")\n\n" + b.guest.Log()))
}
