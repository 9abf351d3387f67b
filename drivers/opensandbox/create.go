package opensandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	// readyLimit is how long a sandbox that the server calls running may take to answer.
	readyLimit = 30 * time.Second
	// orphanSearch is how long a sandbox whose create was given up is looked for. A pull may take longer; then it is
	// found later, by its labels.
	orphanSearch = 3 * time.Second
	// progressEvery is the time between words about a create that takes long.
	progressEvery = 5 * time.Second
)

// keepAliveEntrypoint holds a sandbox open: it ends with its entrypoint.
var keepAliveEntrypoint = []string{"tail", "-f", "/dev/null"}

// Create makes a sandbox, waits until commands can run in it, and checks that its network is what was asked for.
func (d *Driver) Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	if d.server == nil {
		return nil, plugin.Errorf(plugin.KindInternal, "the driver has not been configured")
	}
	req, err := d.request(spec)
	if err != nil {
		return nil, err
	}
	if d.settings.apiKey == "" {
		events.Warn("the OpenSandbox server is used without an API key: whoever reaches it can run code there; set " + envAPIKey)
	}
	record, err := d.earlier(ctx, spec)
	if err != nil {
		return nil, err
	}
	if record == nil {
		if record, err = d.post(ctx, spec, *req, events); err != nil {
			return nil, err
		}
	}
	box := boxRef{ID: record.ID, Workdir: spec.Workdir, sandboxctlID: spec.ID}
	// From here on the SDK destroys the sandbox when an error is returned.
	events.Created(box.handle())
	events.Progress(plugin.Progress{Message: "waiting for the sandbox to answer"})
	if err := d.settle(ctx, box, spec, req.NetworkPolicy); err != nil {
		return nil, err
	}
	return d.created(spec, box, record), nil
}

// created is the answer. Create's own record lacks the image, and its labels are what was sent.
func (d *Driver) created(spec *plugin.SandboxSpec, box boxRef, record *sandboxRecord) *plugin.Sandbox {
	return &plugin.Sandbox{
		ID: spec.ID, Handle: box.handle(), Name: spec.Name, Owner: spec.Owner, State: plugin.StateRunning,
		Image: spec.Image, Labels: spec.Labels, CreatedAt: spec.CreatedAt, ExpiresAt: record.expires(),
		Network: spec.Network, Workdir: spec.Workdir,
	}
}

// earlier finds the sandbox of a create whose answer the host lost: the server has no idempotency key. It also
// finds out that the server cannot be reached or the key is wrong, before anything is created.
func (d *Driver) earlier(ctx context.Context, spec *plugin.SandboxSpec) (*sandboxRecord, error) {
	found, err := d.server.list(ctx, map[string]string{plugin.LabelID: spec.ID})
	if err != nil {
		return nil, err
	}
	for i := range found {
		if spec.RequestID != "" && found[i].Metadata[labelRequest] == requestLabel(spec.RequestID) {
			return &found[i], nil
		}
	}
	if len(found) > 0 {
		return nil, plugin.Errorf(plugin.KindConflict, "a sandbox with the id %s exists already", spec.ID)
	}
	return nil, nil
}

// post makes the sandbox. The server answers when the image is there and the container runs.
func (d *Driver) post(ctx context.Context, spec *plugin.SandboxSpec, req createRequest, events plugin.CreateEvents) (*sandboxRecord, error) {
	limited, cancel := context.WithTimeout(ctx, d.settings.createTimeout)
	defer cancel()
	type answered struct {
		record *sandboxRecord
		err    error
	}
	done := make(chan answered, 1)
	go func() {
		record, err := d.server.create(limited, req)
		done <- answered{record, err}
	}()
	began := time.Now()
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	events.Progress(plugin.Progress{Message: "creating the sandbox from " + spec.Image})
	for {
		select {
		case <-ticker.C:
			events.Progress(plugin.Progress{Message: fmt.Sprintf("still creating after %ds; the server may be pulling %s",
				int(time.Since(began).Seconds()), spec.Image)})
		case a := <-done:
			if a.err == nil {
				return a.record, nil
			}
			return nil, d.createFailed(ctx, spec, a.err)
		}
	}
}

// createFailed says why a create failed. Without an answer the sandbox may exist, now or later, and is looked for.
func (d *Driver) createFailed(ctx context.Context, spec *plugin.SandboxSpec, err error) error {
	if a := answerOf(err); a != nil && a.status < 500 {
		return refusedCreate(spec, a, err)
	}
	if a := answerOf(err); a != nil && a.status == http.StatusInternalServerError {
		if a.code == "SANDBOX_IMAGE_PULL_FAILED" {
			return plugin.Errorf(plugin.KindInvalid, "the server cannot get the image %s: %w", spec.Image, a).
				WithHint("check the name, and that the server can pull it or has it already")
		}
		return d.removeBroken(ctx, spec.ID, err)
	}
	if neverSent(err) {
		return err
	}
	cleanErr := d.removeOrphan(ctx, spec.ID)
	lost := plugin.Errorf(plugin.KindIndeterminate, "the server did not say whether it created the sandbox: %w", err)
	if errors.Is(err, context.DeadlineExceeded) {
		lost = plugin.Errorf(plugin.KindIndeterminate, "the server did not create the sandbox within %s: %w", d.settings.createTimeout, err)
		lost.Hint = "have the image pulled on the server, or raise drivers.opensandbox.create_timeout"
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		lost = plugin.Errorf(plugin.KindCanceled, "the create was cancelled")
	}
	if cleanErr != nil {
		lost.LeftBehind = true
		lost.Message += "; " + cleanErr.Error()
	}
	return lost
}

// refusedCreate finds the option behind a refusal where the server names it.
func refusedCreate(spec *plugin.SandboxSpec, a *answer, err error) error {
	text := strings.ToLower(a.message)
	switch {
	case strings.Contains(text, "networkpolicy") || strings.Contains(text, "egress"):
		return plugin.Refusedf("--network", "the server cannot limit a sandbox's network: %s", a.message).
			WithHint("configure [egress] and network_mode = \"bridge\" on the server, or use --network open")
	case strings.Contains(text, "timeout") && !spec.ExpiresAt.IsZero():
		return plugin.Refusedf("--ttl", "the server refuses the lifetime: %s", a.message)
	case a.status == http.StatusNotFound:
		return plugin.Errorf(plugin.KindUnavailable, "%w", err).
			WithHint("check that the endpoint is an OpenSandbox server")
	}
	return err
}

var errOrphan = errors.New("it may still appear on the server; `sandboxctl gc` removes it then")

// removeBroken removes a sandbox that the server has although it reported a failure. One look is enough, as the server
// is done with it.
func (d *Driver) removeBroken(ctx context.Context, id string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orphanSearch)
	defer cancel()
	// What cannot be listed is left to gc, which goes by the label, too.
	found, _ := d.server.list(ctx, map[string]string{plugin.LabelID: id})
	for _, record := range found {
		if _, err := d.server.delete(ctx, record.ID); err != nil {
			failed := plugin.Errorf(plugin.KindOf(cause), "%w; and what was made could not be removed: %w", cause, err)
			failed.LeftBehind = true
			return failed
		}
	}
	return cause
}

// removeOrphan removes what a create without an answer has made so far. nil means that something was found and
// removed; a create that is still pulling cannot be found yet.
func (d *Driver) removeOrphan(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orphanSearch)
	defer cancel()
	for {
		// A listing or a deletion that fails is tried again until the time is up.
		found, _ := d.server.list(ctx, map[string]string{plugin.LabelID: id})
		for _, record := range found {
			if _, err := d.server.delete(ctx, record.ID); err == nil {
				return nil
			}
		}
		if !pause(ctx, 200*time.Millisecond) {
			return errOrphan
		}
	}
}

// settle makes a running sandbox a usable one.
func (d *Driver) settle(ctx context.Context, box boxRef, spec *plugin.SandboxSpec, policy *networkPolicy) error {
	x, err := d.waitReady(ctx, box)
	if err != nil {
		return err
	}
	if err := d.verifyNetwork(ctx, box, policy, spec.Options[optionNamesOnly] == "true"); err != nil {
		return err
	}
	if spec.Workdir == "" {
		return nil
	}
	out, err := x.run(ctx, "mkdir -p -- "+quote(spec.Workdir)+" 2>&1")
	if err != nil {
		return err
	}
	if out.exitCode != 0 {
		return plugin.Errorf(plugin.KindInvalid, "the working directory cannot be made: %s", strings.TrimSpace(out.output))
	}
	return nil
}

// waitReady polls until execd answers: the server says Running a little before that.
func (d *Driver) waitReady(ctx context.Context, box boxRef) (*execd, error) {
	limited, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		x, err := d.execd(limited, box)
		if err == nil {
			if err = x.ping(limited); err == nil {
				return x, nil
			}
		}
		if kind := plugin.KindOf(err); kind == plugin.KindAuth {
			return nil, err
		}
		if record, e := d.server.get(limited, box.ID); e == nil && ended(record) {
			return nil, d.diedError(ctx, box, record)
		}
		if !pause(limited, wait) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, plugin.Errorf(plugin.KindUnavailable, "the sandbox did not answer within %s: %w", readyLimit, err).
				WithHint("%s", hintOf(err))
		}
	}
}

func hintOf(err error) string {
	var typed *plugin.Error
	if errors.As(err, &typed) {
		return typed.Hint
	}
	return ""
}

// diedError quotes what a sandbox printed before it ended.
func (d *Driver) diedError(ctx context.Context, box boxRef, record *sandboxRecord) error {
	err := plugin.Errorf(plugin.KindInvalid, "the sandbox ended while it started: %s", stateText(record)).
		WithHint("the image needs /bin/sh and tail, and the server must be allowed to start it")
	if words := d.server.lastWords(ctx, box.ID); words != "" {
		err.Message += "; it printed: " + words
	}
	return err
}
