//go:build linux

package osbdouble

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/opensandbox/internal/osbdouble/egress"
)

type createRequest struct {
	Image *struct {
		URI  string          `json:"uri"`
		Auth json.RawMessage `json:"auth"`
	} `json:"image"`
	SnapshotID      string             `json:"snapshotId"`
	Entrypoint      []string           `json:"entrypoint"`
	Timeout         *int64             `json:"timeout"`
	ResourceLimits  map[string]string  `json:"resourceLimits"`
	Env             map[string]*string `json:"env"`
	Metadata        map[string]string  `json:"metadata"`
	NetworkPolicy   *egress.Policy     `json:"networkPolicy"`
	Extensions      map[string]string  `json:"extensions"`
	SecureAccess    bool               `json:"secureAccess"`
	Volumes         []json.RawMessage  `json:"volumes"`
	Platform        json.RawMessage    `json:"platform"`
	CredentialProxy json.RawMessage    `json:"credentialProxy"`
}

func (d *Double) createSandbox(w http.ResponseWriter, r *http.Request) {
	k := d.settings()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var req createRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	if k.UnknownFields {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(&req); err != nil {
		if k.UnknownFields && strings.Contains(err.Error(), "unknown field") {
			d.fail(w, http.StatusBadRequest, "SANDBOX::INVALID_PARAMETER", "%v", err)
			return
		}
		unprocessable(w, violation{"json_invalid", []any{"body"}, "JSON decode error", map[string]any{}})
		return
	}
	if v := req.schema(); v != nil {
		unprocessable(w, v...)
		return
	}
	if code, text := req.check(k); code != "" {
		d.fail(w, http.StatusBadRequest, code, "%s", text)
		return
	}
	d.provision(w, req, k)
}

// schema is what the server checks before any of its own code runs.
func (req *createRequest) schema() []violation {
	var out []violation
	if req.ResourceLimits == nil {
		out = append(out, violation{"missing", []any{"body", "resourceLimits"}, "Field required", map[string]any{}})
	}
	if req.Timeout != nil && *req.Timeout < 60 {
		out = append(out, violation{"greater_than_equal", []any{"body", "timeout"}, "Input should be greater than or equal to 60", *req.Timeout})
	}
	if (req.Image == nil) == (req.SnapshotID == "") {
		out = append(out, violation{"value_error", []any{"body"}, "Value error, Exactly one of image or snapshotId must be provided.", map[string]any{}})
	}
	if req.Image != nil && len(req.Entrypoint) == 0 {
		out = append(out, violation{"value_error", []any{"body"}, "Value error, entrypoint is required when image is provided.", map[string]any{}})
	}
	if p := req.NetworkPolicy; p != nil && p.DefaultAction != "" && p.DefaultAction != "allow" && p.DefaultAction != "deny" {
		out = append(out, violation{"literal_error", []any{"body", "networkPolicy", "defaultAction"}, "Input should be 'allow' or 'deny'", p.DefaultAction})
	}
	return out
}

var (
	memoryLimit = regexp.MustCompile(`(?i)^\d+([kmgti]i?|[kmgti]?b)?$`)
	cpuLimit    = regexp.MustCompile(`^\d+(\.\d+)?m?$`)
	labelPart   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
)

// check is what the server's own code refuses with 400.
func (req *createRequest) check(k Knobs) (code, text string) {
	if k.MaxTimeout > 0 && req.Timeout != nil && time.Duration(*req.Timeout)*time.Second > k.MaxTimeout {
		return "SANDBOX::INVALID_PARAMETER", fmt.Sprintf("timeout must not exceed %d seconds", int(k.MaxTimeout.Seconds()))
	}
	if !k.LenientLimits {
		if m := req.ResourceLimits["memory"]; m != "" && !memoryLimit.MatchString(m) {
			return "SANDBOX::INVALID_PARAMETER", "invalid memory limit: " + m
		}
		if c := req.ResourceLimits["cpu"]; c != "" && !cpuLimit.MatchString(c) {
			return "SANDBOX::INVALID_PARAMETER", "invalid cpu limit: " + c
		}
	}
	if text := checkLabels(req.Metadata); text != "" {
		return "SANDBOX::INVALID_METADATA_LABEL", text
	}
	if req.SecureAccess {
		return "SANDBOX::INVALID_PARAMETER", "secureAccess is not supported when runtime.type='docker'."
	}
	if req.NetworkPolicy != nil && k.NoEgressImage {
		return "SANDBOX::INVALID_PARAMETER", "egress.image must be configured when networkPolicy is provided."
	}
	return "", ""
}

func checkLabels(labels map[string]string) string {
	for key, value := range labels {
		prefix, name, found := strings.Cut(key, "/")
		if !found {
			prefix, name = "", key
		}
		if prefix == "opensandbox.io" {
			return "metadata key prefix 'opensandbox.io/' is reserved: " + key
		}
		if len(name) > 63 || !labelPart.MatchString(name) || len(prefix) > 253 || (found && !labelPrefix.MatchString(prefix)) {
			return "invalid metadata key: " + key
		}
		if value != "" && (len(value) > 63 || !labelPart.MatchString(value)) {
			return fmt.Sprintf("invalid metadata value for %s: %q", key, value)
		}
	}
	return ""
}

// provision pulls and starts while the client waits. A client that has gone does not stop it.
func (d *Double) provision(w http.ResponseWriter, req createRequest, k Knobs) {
	d.mu.Lock()
	epoch := d.epoch
	d.creations.Add(1)
	d.mu.Unlock()
	defer d.creations.Done()
	image := "snapshot"
	if req.Image != nil {
		image = req.Image.URI
	}
	for waited := time.Duration(0); waited < k.PullDelay; waited += 5 * time.Millisecond {
		time.Sleep(5 * time.Millisecond)
		if d.abandoned(epoch) {
			return
		}
	}
	known := k.Images
	if known == nil {
		known = DefaultImages
	}
	if req.Image != nil && !slices.Contains(known, image) {
		d.fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
			"Failed to pull image %s: 404 Client Error: Not Found (\"pull access denied for %s\")", image, image)
		return
	}
	box, err := d.boot(req, image, k)
	if err != nil {
		d.fail(w, http.StatusInternalServerError, "DOCKER::SANDBOX_START_FAILED", "Failed to create or start container: %v", err)
		return
	}
	writeJSON(w, http.StatusAccepted, box.view(false))
}

func (d *Double) abandoned(epoch int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.epoch != epoch
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
