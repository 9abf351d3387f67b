package images

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sys/unix"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// unusable is about an image that cannot be what its maker wanted.
func unusable(display string, err error) error {
	return plugin.Errorf(plugin.KindInvalid, "the image %s cannot be used: %w", display, err).
		WithHint("the image is damaged or made to do harm; take another one")
}

// registryError says what a registry's answer means. Addresses are left out of it:
// those that registries redirect to carry credentials.
func registryError(ctx context.Context, display, registry string, err error) error {
	var typed *plugin.Error
	if errors.As(err, &typed) {
		return typed
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	login := strings.TrimSuffix("docker login "+registry, " "+name.DefaultRegistry)
	registry = known(registry)
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return plugin.Errorf(plugin.KindUnavailable, "the image %s could not be fetched from %s: %s", display, registry, withoutAddress(err)).
			WithHint("look at the network, and at HTTPS_PROXY where there is a proxy; an image that was pulled before needs neither")
	}
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return plugin.Errorf(plugin.KindAuth, "the registry %s does not give the image %s: it does not exist, or this needs a login", registry, display).
			WithHint("look at the name; for a private image run `%s`", login)
	case code == http.StatusTooManyRequests:
		return plugin.Errorf(plugin.KindRateLimited, "the registry %s has had too many requests from here to give the image %s", registry, display).
			WithHint("wait, or run `%s`, which raises the limit of some registries", login)
	case code == http.StatusNotFound || notThere(answer):
		return plugin.Errorf(plugin.KindInvalid, "the registry %s has no image %s", registry, display).
			WithHint("look at the name and the tag")
	case code >= 500:
		return plugin.Errorf(plugin.KindUnavailable, "the registry %s failed with status %d when it was asked for %s", registry, code, display).
			WithHint("try again later")
	}
	return plugin.Errorf(plugin.KindUnavailable, "the registry %s answered with status %d when it was asked for %s", registry, answer.StatusCode, display)
}

func notThere(answer *transport.Error) bool {
	for _, each := range answer.Errors {
		switch each.Code {
		case transport.ManifestUnknownErrorCode, transport.NameUnknownErrorCode, transport.BlobUnknownErrorCode:
			return true
		}
	}
	return false
}

// withoutAddress is an error's text without the address that was asked.
func withoutAddress(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		return withoutAddress(request.Err)
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// writeError says why an image could not be stored.
func (c *content) writeError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return plugin.Errorf(plugin.KindUnavailable, "there is no space left to store the image %s", c.display).
			WithHint("remove images with `sandboxctl image prune`, or set SANDBOXCTL_STATE_DIR to a larger disk")
	}
	var source *sourceError
	if errors.As(err, &source) {
		return c.readError(ctx, source.err)
	}
	var local *fs.PathError
	if errors.As(err, &local) {
		return plugin.Errorf(plugin.KindUnavailable, "the image %s could not be stored: %w", c.display, err)
	}
	return unusable(c.display, err)
}

// readError says why a layer could not be read: the way to it failed, or it is not what
// was promised.
func (c *content) readError(ctx context.Context, err error) error {
	if c.registry != "" && transient(err) {
		return registryError(ctx, c.display, c.registry, err)
	}
	var local *fs.PathError
	if errors.As(err, &local) {
		return plugin.Errorf(plugin.KindUnavailable, "the image %s could not be read: %w", c.display, err)
	}
	return unusable(c.display, errors.New(withoutAddress(err)))
}

// transient reports whether an error is of the network and not of what came over it.
func transient(err error) bool {
	var (
		network net.Error
		answer  *transport.Error
	)
	return errors.As(err, &network) || errors.As(err, &answer) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errStalled) ||
		strings.HasPrefix(err.Error(), "http2:")
}
