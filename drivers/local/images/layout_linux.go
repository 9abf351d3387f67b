package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// layoutSource is an image in a directory with an OCI image layout.
type layoutSource struct {
	dir, tag string
}

func (s *layoutSource) canonical() string { return localName(layoutPrefix, s.dir, s.tag) }

func (s *layoutSource) cached() bool { return false }

func (s *layoutSource) resolve(ctx context.Context) (*content, error) {
	c := &content{reference: s.canonical(), display: s.canonical()}
	opened, err := layout.FromPath(s.dir)
	if err != nil {
		return nil, s.unreadable(err)
	}
	index, err := opened.ImageIndex()
	if err != nil {
		return nil, s.unreadable(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, s.unreadable(err)
	}
	chosen, err := s.choose(manifest)
	if err != nil {
		return nil, err
	}
	for chosen.MediaType.IsIndex() {
		var inner v1.IndexManifest
		if err := readJSON(opened, chosen, &inner); err != nil {
			return nil, s.unreadable(err)
		}
		if chosen, err = choose(&inner, c.display); err != nil {
			return nil, err
		}
	}
	c.digest = chosen.Digest
	return c, s.describe(c, opened, chosen)
}

// describe reads the image's manifest and configuration.
func (s *layoutSource) describe(c *content, opened layout.Path, chosen v1.Descriptor) error {
	var manifest v1.Manifest
	if err := readJSON(opened, chosen, &manifest); err != nil {
		return s.unreadable(err)
	}
	var config v1.ConfigFile
	if err := readJSON(opened, manifest.Config, &config); err != nil {
		return s.unreadable(err)
	}
	for _, descriptor := range manifest.Layers {
		c.layers = append(c.layers, layer{size: descriptor.Size, open: func(context.Context) (io.ReadCloser, error) {
			return opened.Blob(descriptor.Digest)
		}})
	}
	return describe(c, &config)
}

func (s *layoutSource) unreadable(err error) error {
	return plugin.Errorf(plugin.KindInvalid, "%s is not a directory with a usable OCI image layout: %w", s.dir, err).
		WithHint("make one with `docker buildx build --output type=oci,tar=false,dest=DIR` or `skopeo copy`")
}

// readJSON reads a manifest or configuration, which has to be what its digest says.
func readJSON(opened layout.Path, descriptor v1.Descriptor, into any) error {
	if descriptor.Size > mostConfig {
		return fmt.Errorf("%s has %d bytes", descriptor.Digest, descriptor.Size)
	}
	blob, err := opened.Blob(descriptor.Digest)
	if err != nil {
		return err
	}
	defer blob.Close()
	content, err := io.ReadAll(io.LimitReader(blob, mostConfig))
	if err != nil {
		return err
	}
	if err := checkDigest(content, descriptor.Digest); err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func checkDigest(content []byte, wanted v1.Hash) error {
	sum, _, err := v1.SHA256(strings.NewReader(string(content)))
	if err == nil && sum != wanted {
		err = fmt.Errorf("%s is not what its digest says", wanted)
	}
	return err
}

// The annotations by which a layout's index names its images. The second is
// containerd's, which writes the whole reference.
var nameAnnotations = []string{"org.opencontainers.image.ref.name", "io.containerd.image.name"}

// choose finds the image with the tag, or the only one. One that is there for several
// platforms counts as one.
func (s *layoutSource) choose(index *v1.IndexManifest) (v1.Descriptor, error) {
	var names []string
	for _, each := range index.Manifests {
		for _, annotation := range nameAnnotations {
			name := each.Annotations[annotation]
			if name == "" {
				continue
			}
			names = append(names, name)
			if s.tag != "" && (name == s.tag || strings.HasSuffix(name, ":"+s.tag)) {
				return each, nil
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case s.tag != "":
		return v1.Descriptor{}, plugin.Errorf(plugin.KindInvalid, "%s has no image with the tag %q", s.dir, s.tag).WithHint("%s", tagsHint(names))
	case len(index.Manifests) == 0:
		return v1.Descriptor{}, s.unreadable(errors.New("there is no image in it"))
	case len(names) > 1:
		return v1.Descriptor{}, plugin.Errorf(plugin.KindInvalid, "%s has several images", s.dir).WithHint("%s", tagsHint(names))
	case len(index.Manifests) == 1:
		return index.Manifests[0], nil
	}
	return choose(index, s.canonical())
}

func tagsHint(names []string) string {
	if len(names) == 0 {
		return "its images have no tags; leave the tag out"
	}
	return "its images are " + strings.Join(names, ", ")
}
