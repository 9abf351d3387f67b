package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// source is a place that an image comes from.
type source interface {
	// canonical is the image's name in full, under which it is remembered.
	canonical() string
	// cached says that an image of that name that is stored already is used as it is.
	// Otherwise the source is at hand, and is looked at each time.
	cached() bool
	// resolve finds out which image the name means now.
	resolve(ctx context.Context) (*content, error)
}

// The beginnings of references that are no registry's.
const (
	layoutPrefix  = "oci:"
	archivePrefix = "docker-archive:"
)

// parse finds out what a user's reference means.
func parse(reference string) (source, error) {
	if rest, ok := strings.CutPrefix(reference, layoutPrefix); ok {
		dir, tag, err := splitPath(rest, fs.FileMode.IsDir)
		if err != nil {
			return nil, plugin.Errorf(plugin.KindInvalid, "the image %q cannot be read: %w", reference, err).
				WithHint("name a directory with an OCI image layout: oci:DIR or oci:DIR:TAG")
		}
		return &layoutSource{dir: dir, tag: tag}, nil
	}
	if rest, ok := strings.CutPrefix(reference, archivePrefix); ok {
		file, tag, err := splitPath(rest, fs.FileMode.IsRegular)
		if err != nil {
			return nil, plugin.Errorf(plugin.KindInvalid, "the image %q cannot be read: %w", reference, err).
				WithHint("name a file that `docker save` wrote: docker-archive:FILE or docker-archive:FILE:NAME")
		}
		return &archiveSource{file: file, tag: tag}, nil
	}
	parsed, err := name.ParseReference(reference)
	if err != nil {
		return nil, plugin.Errorf(plugin.KindInvalid, "%q is not the name of an image", reference).
			WithHint("name one as docker does: python:3.12-slim or registry.example.com/team/app:1.0; or oci:DIR, or docker-archive:FILE")
	}
	return &registrySource{reference: parsed}, nil
}

// splitPath takes as much of PATH[:TAG] for the path as exists; either may have colons.
func splitPath(text string, wanted func(fs.FileMode) bool) (path, tag string, err error) {
	for at := len(text); at > 0; at = strings.LastIndexByte(text[:at], ':') {
		info, statErr := os.Stat(text[:at])
		if statErr == nil && !wanted(info.Mode()) {
			statErr = fmt.Errorf("%s is not of that kind", text[:at])
		}
		if statErr == nil {
			path, err = filepath.Abs(text[:at])
			return path, strings.TrimPrefix(text[at:], ":"), err
		}
		// The longest path is the one that was meant.
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = statErr
		}
	}
	if err == nil {
		err = errors.New("it names no path")
	}
	return "", "", err
}

// familiar is a reference as docker shows it.
func familiar(reference string) string {
	rest, ok := strings.CutPrefix(reference, name.DefaultRegistry+"/")
	if !ok {
		return reference
	}
	return strings.TrimPrefix(rest, "library/")
}

// localName is how an image in a file of this machine is named.
func localName(prefix, file, tag string) string {
	if tag == "" {
		return prefix + file
	}
	return prefix + file + ":" + tag
}

// platform is what images have to be for.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// choose finds the image for this machine in an index, which may name others.
func choose(index *v1.IndexManifest, display string) (v1.Descriptor, error) {
	wanted := platform()
	var others []string
	for _, each := range index.Manifests {
		if each.Platform == nil || each.Annotations["vnd.docker.reference.type"] != "" {
			continue
		}
		if each.Platform.Satisfies(wanted) {
			return each, nil
		}
		others = append(others, each.Platform.String())
	}
	if len(others) == 0 && len(index.Manifests) == 1 {
		return index.Manifests[0], nil
	}
	return v1.Descriptor{}, plugin.Errorf(plugin.KindInvalid, "the image %s has nothing for this machine, which is %s; it is for %s",
		display, wanted.String(), strings.Join(others, ", ")).WithHint("take an image that is built for %s", wanted.String())
}

// mostConfig bounds an image's configuration, in bytes, and mostLayers its layers.
// Docker makes no more than 127.
const (
	mostConfig = 8 << 20
	mostLayers = 1024
)

// describe fills in a content from the configuration, whose digests the layers must have.
func describe(c *content, config *v1.ConfigFile) error {
	if config.OS != "" && config.OS != "linux" || config.Architecture != "" && config.Architecture != runtime.GOARCH {
		wanted := platform()
		return plugin.Errorf(plugin.KindInvalid, "the image %s is for %s/%s and this machine is %s", c.display, config.OS, config.Architecture, wanted.String()).
			WithHint("take an image that is built for %s", wanted.String())
	}
	if len(config.RootFS.DiffIDs) != len(c.layers) || len(c.layers) > mostLayers {
		return unusable(c.display, fmt.Errorf("it has %d layers and digests for %d", len(c.layers), len(config.RootFS.DiffIDs)))
	}
	for i, digest := range config.RootFS.DiffIDs {
		c.layers[i].diffID = digest
	}
	c.config = config.Config
	for _, text := range append([]string{config.Config.WorkingDir, config.Config.User}, config.Config.Env...) {
		if strings.ContainsRune(text, 0) {
			return unusable(c.display, errors.New("there is a zero byte in its configuration"))
		}
	}
	return nil
}
