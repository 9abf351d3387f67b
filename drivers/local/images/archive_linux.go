package images

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// archiveSource is an image in a file that `docker save` wrote. Its digest is that of
// the configuration, docker's image id, since the archive has no manifest.
type archiveSource struct {
	file, tag string
}

func (s *archiveSource) canonical() string { return localName(archivePrefix, s.file, s.tag) }

func (s *archiveSource) cached() bool { return false }

func (s *archiveSource) resolve(ctx context.Context) (*content, error) {
	c := &content{reference: s.canonical(), display: s.canonical()}
	members, err := s.index(ctx)
	if err != nil {
		return nil, s.unreadable(err)
	}
	var manifest tarball.Manifest
	text, err := s.read(members, "manifest.json")
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		return nil, s.unreadable(err)
	}
	chosen, err := s.choose(manifest)
	if err != nil {
		return nil, err
	}
	text, err = s.read(members, chosen.Config)
	if err != nil {
		return nil, s.unreadable(err)
	}
	var config v1.ConfigFile
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, s.unreadable(err)
	}
	if c.digest, _, err = v1.SHA256(strings.NewReader(string(text))); err != nil {
		return nil, err
	}
	for _, name := range chosen.Layers {
		found, err := find(members, name)
		if err != nil {
			return nil, s.unreadable(err)
		}
		c.layers = append(c.layers, layer{size: found.size, open: func(context.Context) (io.ReadCloser, error) { return s.open(found) }})
	}
	return c, describe(c, &config)
}

func (s *archiveSource) unreadable(err error) error {
	return plugin.Errorf(plugin.KindInvalid, "%s is not an archive with a usable image: %w", s.file, err).
		WithHint("make one with `docker save -o FILE NAME`, and do not compress it")
}

// member is a file in the archive, or a link to one.
type member struct {
	offset, size int64
	link         string
}

// mostMembers bounds what is remembered of an archive.
const mostMembers = 64 * mostLayers

// index goes through the archive once, so that layers can be read where they are.
func (s *archiveSource) index(ctx context.Context) (map[string]member, error) {
	file, err := os.Open(s.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	members := map[string]member{}
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return members, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && len(members) > mostMembers {
			err = fmt.Errorf("it has more than %d members", mostMembers)
		}
		if err != nil {
			return nil, err
		}
		offset, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		found := member{offset: offset, size: header.Size}
		if header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink {
			// Docker links layers that it writes twice.
			found.link = header.Linkname
			if header.Typeflag == tar.TypeSymlink {
				found.link = path.Join(path.Dir(header.Name), header.Linkname)
			}
		}
		members[path.Clean(header.Name)] = found
	}
}

func find(members map[string]member, name string) (member, error) {
	for range mostLinks {
		found, ok := members[path.Clean(name)]
		if !ok {
			return member{}, fmt.Errorf("it has no %q", name)
		}
		if found.link == "" {
			return found, nil
		}
		name = found.link
	}
	return member{}, fmt.Errorf("%q is a link without an end", name)
}

func (s *archiveSource) open(found member) (io.ReadCloser, error) {
	file, err := os.Open(s.file)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, found.offset, found.size), file}, nil
}

// read returns a small member.
func (s *archiveSource) read(members map[string]member, name string) ([]byte, error) {
	found, err := find(members, name)
	if err != nil {
		return nil, err
	}
	if found.size > mostConfig {
		return nil, fmt.Errorf("its %q has %d bytes", name, found.size)
	}
	opened, err := s.open(found)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(opened)
}

// choose finds the image with the tag, or the only one.
func (s *archiveSource) choose(manifest tarball.Manifest) (*tarball.Descriptor, error) {
	var names []string
	for i := range manifest {
		names = append(names, manifest[i].RepoTags...)
		if s.tag != "" && slices.ContainsFunc(manifest[i].RepoTags, s.means) {
			return &manifest[i], nil
		}
	}
	switch {
	case s.tag != "":
		return nil, plugin.Errorf(plugin.KindInvalid, "%s has no image %q", s.file, s.tag).WithHint("%s", tagsHint(names))
	case len(manifest) == 0:
		return nil, s.unreadable(errors.New("there is no image in it"))
	case len(manifest) > 1:
		return nil, plugin.Errorf(plugin.KindInvalid, "%s has several images", s.file).WithHint("%s", tagsHint(names))
	}
	return &manifest[0], nil
}

// means reports whether what the user wrote, a tag or a name with or without one, is
// one of the archive's names.
func (s *archiveSource) means(repoTag string) bool {
	if repoTag == s.tag || strings.HasSuffix(repoTag, ":"+s.tag) {
		return true
	}
	theirs, err := name.NewTag(repoTag)
	if err != nil {
		return false
	}
	ours, err := name.NewTag(s.tag)
	return err == nil && ours.Name() == theirs.Name()
}
