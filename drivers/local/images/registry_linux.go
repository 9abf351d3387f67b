package images

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// registrySource is an image in a registry. Credentials are docker's or podman's.
type registrySource struct {
	reference name.Reference
}

func (s *registrySource) canonical() string { return s.reference.Name() }
func (s *registrySource) cached() bool      { return true }

func (s *registrySource) resolve(ctx context.Context) (*content, error) {
	registry := s.reference.Context().RegistryStr()
	c := &content{reference: s.canonical(), display: familiar(s.canonical()), registry: registry}
	image, err := s.image(ctx, c)
	if err != nil {
		return nil, registryError(ctx, c.display, registry, err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, registryError(ctx, c.display, registry, err)
	}
	if manifest.Config.Size > mostConfig {
		return nil, unusable(c.display, fmt.Errorf("its configuration has %d bytes", manifest.Config.Size))
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, registryError(ctx, c.display, registry, err)
	}
	for _, descriptor := range manifest.Layers {
		if len(descriptor.URLs) > 0 {
			return nil, unusable(c.display, fmt.Errorf("a layer of it is not in the registry but elsewhere"))
		}
		c.layers = append(c.layers, layer{size: descriptor.Size, open: openRemote(image, descriptor.Digest)})
	}
	return c, describe(c, config)
}

// image asks the registry, and finds out the image's digest.
func (s *registrySource) image(ctx context.Context, c *content) (v1.Image, error) {
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(logins{}), remote.WithPlatform(platform()),
		remote.WithTransport(newTransport(s.reference.Context().Registry)), remote.WithUserAgent("sandboxctl"),
	}
	found, err := remote.Get(s.reference, options...)
	if err != nil {
		return nil, err
	}
	c.digest = found.Digest
	if !found.MediaType.IsIndex() {
		return found.Image()
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	chosen, err := choose(manifest, c.display)
	if err != nil {
		return nil, err
	}
	c.digest = chosen.Digest
	return remote.Image(s.reference.Context().Digest(chosen.Digest.String()), options...)
}

// openRemote downloads a layer. What is read of it is checked against its digest.
func openRemote(image v1.Image, digest v1.Hash) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) {
		layer, err := image.LayerByDigest(digest)
		if err != nil {
			return nil, err
		}
		return layer.Compressed()
	}
}

// logins are docker's, or podman's where docker has none. Both may be with a credential
// helper, a program on the PATH.
type logins struct{}

// Resolve implements authn.Keychain.
func (logins) Resolve(target authn.Resource) (authn.Authenticator, error) {
	found, err := authn.DefaultKeychain.Resolve(target)
	if err == nil {
		return found, nil
	}
	// What follows is all that a helper printed.
	reason, _, _ := strings.Cut(err.Error(), ", out:")
	return nil, plugin.Errorf(plugin.KindAuth, "the login to %s cannot be read: %s", known(target.RegistryStr()), reason).
		WithHint("look at docker's config.json, in ~/.docker or DOCKER_CONFIG, and at the credential helper that it names")
}

// known is a registry as people know it.
func known(registry string) string {
	if registry == name.DefaultRegistry {
		return "Docker Hub"
	}
	return registry
}

// confidential refuses what would go over the network in the clear, credentials included.
type confidential struct {
	*http.Transport
	// plain says that the registry is on this machine.
	plain bool
}

// stallLimit is how long a registry may take to begin an answer, or to go on with one.
const stallLimit = 60 * time.Second

func newTransport(registry name.Registry) *confidential {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.ResponseHeaderTimeout = stallLimit
	// Layers are compressed already.
	base.DisableCompression = true
	return &confidential{Transport: base, plain: loopback(registry.RegistryStr())}
}

func (t *confidential) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" && !t.plain {
		return nil, fmt.Errorf("it would be asked without encryption, which is done on this machine only")
	}
	return t.Transport.RoundTrip(request)
}

// loopback reports whether a registry, HOST[:PORT], is on this machine.
func loopback(registry string) bool {
	host := registry
	if h, _, err := net.SplitHostPort(registry); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}
