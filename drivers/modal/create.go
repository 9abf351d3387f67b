package modal

import (
	"context"
	"errors"
	"math"
	"path"
	"regexp"
	"time"
	"unicode/utf8"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// envName is what Modal takes as the name of a variable.
var envName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// Create makes one sandbox. Everything that Modal would not enforce is refused
// before the first call; everything else is an argument of one create call, so
// that no half-configured sandbox can exist.
func (d *Driver) Create(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	params, err := d.params(spec)
	if err != nil {
		return nil, err
	}
	app, err := d.app(ctx, true)
	if err != nil {
		return nil, notFoundIsInvalid(classify(err, "looking up the Modal app %s", d.settings.App))
	}
	sb, asked, err := d.createWithImage(ctx, app, spec, params, events)
	switch {
	case err == nil:
	case !asked && ctx.Err() != nil:
		return nil, ctx.Err()
	case !asked:
		return nil, err
	case errors.As(err, new(modalsdk.AlreadyExistsError)):
		return d.repeated(ctx, spec, events)
	default:
		return nil, d.failed(ctx, spec, err)
	}
	created, _ := sandboxFromTags(sb.SandboxID, params.Tags)
	events.Created(created.Handle)
	return created, nil
}

// params turns a specification into Modal's arguments, or refuses it.
func (d *Driver) params(spec *plugin.SandboxSpec) (*modalsdk.SandboxCreateParams, error) {
	if spec.ID == "" || spec.RequestID == "" {
		return nil, plugin.Errorf(plugin.KindInvalid, "the specification has no id or no request id")
	}
	if spec.ExpiresAt.IsZero() {
		return nil, plugin.Refusedf("--ttl", "Modal ends every sandbox after at most 24 hours, so one without an expiry is not possible").
			WithHint("give a --ttl of up to 24h")
	}
	if _, err := lifetime(spec.ExpiresAt); err != nil {
		return nil, err
	}
	if spec.Workdir != "" && !path.IsAbs(spec.Workdir) {
		return nil, plugin.Refusedf("--workdir", "Modal takes absolute working directories only, and %q is not one", spec.Workdir)
	}
	for name, value := range spec.Env {
		if !envName.MatchString(name) {
			return nil, plugin.Refusedf("--env", "Modal cannot set a variable named %q; names are letters, digits and underscores", name)
		}
		if !utf8.ValidString(value) {
			return nil, plugin.Refusedf("--env", "Modal cannot set the variable %s, whose value is not valid UTF-8", name)
		}
	}
	tags, err := tagsFor(spec)
	if err != nil {
		return nil, plugin.Errorf(plugin.KindInternal, "the sandbox's tags cannot be written: %w", err)
	}
	params := &modalsdk.SandboxCreateParams{
		Name:        modalName(spec.ID),
		Tags:        tags,
		Env:         spec.Env,
		Workdir:     spec.Workdir,
		GPU:         spec.GPU,
		IdleTimeout: wholeSeconds(spec.IdleTimeout),
	}
	if err := applyResources(params, spec); err != nil {
		return nil, err
	}
	if err := d.applyNetwork(params, spec); err != nil {
		return nil, err
	}
	return params, nil
}

// applyResources asks for what is wanted and makes it the limit: Modal's
// requests alone are a minimum, above which a sandbox may use and be billed for
// more.
func applyResources(params *modalsdk.SandboxCreateParams, spec *plugin.SandboxSpec) error {
	if spec.CPUs > 0 {
		// Modal counts physical cores of two hardware threads each.
		cores := spec.CPUs / 2
		if cores < 0.001 {
			return plugin.Refusedf("--cpus", "Modal's smallest share is 0.002 CPUs, and %g were asked for", spec.CPUs)
		}
		params.CPU, params.CPULimit = cores, cores
	}
	if spec.MemoryBytes > 0 {
		const mebibyte = 1 << 20
		mebibytes := (spec.MemoryBytes + mebibyte - 1) / mebibyte
		if mebibytes > math.MaxInt32 {
			return plugin.Refusedf("--memory", "Modal has no machine with %d MiB of memory", mebibytes)
		}
		params.MemoryMiB, params.MemoryLimitMiB = int(mebibytes), int(mebibytes)
	}
	return nil
}

// wholeSeconds rounds up: Modal takes whole seconds, and reads 0 as "none".
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// lifetime is how long Modal shall let the sandbox live if it is created now.
func lifetime(expires time.Time) (time.Duration, error) {
	left := wholeSeconds(time.Until(expires))
	if left <= 0 {
		return 0, plugin.Errorf(plugin.KindInvalid, "the sandbox would have expired before it is created").
			WithHint("give a longer --ttl; the first use of an image can take minutes")
	}
	// The host has refused longer ones; what is above is rounding.
	return min(left, maxLifetime), nil
}

// repeated answers a create whose name is taken. The sandbox is ours only if it
// carries this very request's nonce; anything else is never adopted.
func (d *Driver) repeated(ctx context.Context, spec *plugin.SandboxSpec, events plugin.CreateEvents) (*plugin.Sandbox, error) {
	sb, tags, err := d.findOwn(ctx, spec)
	if err != nil {
		// It is not known whose it is.
		return nil, d.undo(ctx, spec, err)
	}
	if sb == nil {
		return nil, plugin.Errorf(plugin.KindConflict, "Modal already has a sandbox named %s, made by another request", modalName(spec.ID))
	}
	found, ours := sandboxFromTags(sb.SandboxID, tags)
	if !ours {
		return nil, plugin.Errorf(plugin.KindConflict, "Modal's sandbox named %s has lost its tags", modalName(spec.ID))
	}
	events.Created(found.Handle)
	return found, nil
}

// findOwn looks for the sandbox that this request made. It returns nil when
// there is none, or one with the name but not the nonce.
func (d *Driver) findOwn(ctx context.Context, spec *plugin.SandboxSpec) (*modalsdk.Sandbox, map[string]string, error) {
	client, err := d.sdk()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	sb, err := client.Sandboxes.FromName(ctx, d.settings.App, modalName(spec.ID), nil)
	if errors.As(err, new(modalsdk.NotFoundError)) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, classify(err, "looking up the sandbox %s", spec.ID)
	}
	tags, err := sb.GetTags(ctx, nil)
	if err != nil {
		return nil, nil, classify(err, "reading the tags of the sandbox %s", spec.ID)
	}
	if tags[tagNonce] != spec.RequestID {
		return nil, nil, nil
	}
	return sb, tags, nil
}

// failed is the error of a create call, after the removal of what it may have
// made.
func (d *Driver) failed(ctx context.Context, spec *plugin.SandboxSpec, cause error) error {
	reported := notFoundIsInvalid(classify(cause, "creating the sandbox at Modal"))
	if ctx.Err() != nil {
		reported = ctx.Err()
	}
	if !mayHaveHappened(cause) {
		return reported
	}
	return d.undo(ctx, spec, reported)
}

// undo removes what a create call may have made, and returns the error to report.
func (d *Driver) undo(ctx context.Context, spec *plugin.SandboxSpec, reported error) error {
	if d.removeLate(ctx, spec) {
		return reported
	}
	// The call may still complete at Modal. The host knows from LeftBehind that
	// it has to look again, and the lifetime ends it in any case.
	unsure := plugin.Errorf(plugin.KindOf(reported), "%s; Modal may still make the sandbox %s", reported, modalName(spec.ID))
	unsure.LeftBehind, unsure.Cause = true, reported
	return unsure
}

// removeLate removes the sandbox that a lost create call may have made, or may
// yet make: Modal completes calls whose client has left.
func (d *Driver) removeLate(ctx context.Context, spec *plugin.SandboxSpec) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(pause*2, time.Second) {
		sb, _, err := d.findOwn(ctx, spec)
		if err == nil && sb != nil {
			if _, err := sb.Terminate(ctx, nil); err == nil || isGone(err) {
				d.remember(sb.SandboxID)
				return true
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// notFoundIsInvalid re-classes "not found" during a create: what is missing then
// is the app or the image, not a sandbox.
func notFoundIsInvalid(err error) error {
	var typed *plugin.Error
	if errors.As(err, &typed) && typed.Kind == plugin.KindNotFound {
		typed.Kind = plugin.KindInvalid
	}
	return err
}
