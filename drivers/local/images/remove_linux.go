package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Remove removes what a name means: a reference, a digest, or the beginning of a digest
// or of a reference that only one image has. An image with other names loses only the
// one that was given. It returns how many bytes that gave back, which is none while
// sandboxes hold the image.
func (s *Store) Remove(ctx context.Context, query string) (freed uint64, err error) {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return 0, unknown(query)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	images, err := s.List()
	if err != nil {
		return 0, err
	}
	image, reference, err := match(images, query)
	if err != nil {
		return 0, err
	}
	if reference != "" && len(image.References) > 1 {
		image.References = slices.DeleteFunc(image.References, func(each string) bool { return each == reference })
		return 0, s.save(image)
	}
	// Without its record the file is a leftover, which the next sweep removes.
	for _, name := range []string{s.file(image.Digest, recordSuffix), image.path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, s.broken(ctx, err)
		}
	}
	if image.Sandboxes > 0 {
		return 0, nil
	}
	return uint64(image.Allocated), nil
}

func unknown(query string) error {
	return plugin.NotFoundf("there is no image %q here", query)
}

// match finds the image that a query means and, where it is one of its references, which.
func match(images []*Image, query string) (found *Image, reference string, err error) {
	canonical := query
	if from, err := parse(query); err == nil {
		canonical = from.canonical()
	}
	for _, image := range images {
		for _, each := range image.References {
			if each == canonical || each == query || familiar(each) == query {
				return image, each, nil
			}
		}
	}
	var candidates []*Image
	for _, image := range images {
		begins := func(text string) bool { return strings.HasPrefix(text, query) }
		if begins(image.Digest) || begins(strings.TrimPrefix(image.Digest, "sha256:")) ||
			slices.ContainsFunc(image.References, func(each string) bool { return begins(familiar(each)) }) {
			candidates = append(candidates, image)
		}
	}
	switch {
	case query == "" || len(candidates) == 0:
		return nil, "", unknown(query)
	case len(candidates) > 1:
		var names []string
		for _, each := range candidates {
			names = append(names, each.Name())
		}
		return nil, "", plugin.Errorf(plugin.KindInvalid, "several images begin with %q: %s", query, strings.Join(names, ", ")).
			WithHint("write more of the name")
	}
	return candidates[0], "", nil
}

// Sweep removes what dead processes left half-made.
func (s *Store) Sweep(ctx context.Context) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.broken(ctx, err)
	}
	if !slices.ContainsFunc(entries, func(each fs.DirEntry) bool { return s.leftover(each.Name()) }) {
		return nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, each := range entries {
		if s.leftover(each.Name()) {
			if err := s.sweepOne(filepath.Join(s.dir, each.Name())); err != nil {
				return s.broken(ctx, err)
			}
		}
	}
	return nil
}

// leftover reports whether a file may be one. While the lock is held, there are no
// others: records and files come and go together.
func (s *Store) leftover(name string) bool {
	stem := strings.TrimSuffix(name, filepath.Ext(name))
	switch filepath.Ext(name) {
	case partialSuffix:
		return true
	case fileSuffix:
		return s.load(filepath.Join(s.dir, stem+recordSuffix)) == nil
	case recordSuffix:
		return s.load(filepath.Join(s.dir, name)) == nil
	}
	return name != lockName
}

// sweepOne removes a leftover unless somebody is still at work on it.
func (s *Store) sweepOne(name string) error {
	if filepath.Ext(name) == partialSuffix {
		file, err := tryLock(name, os.O_RDWR)
		if file == nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		}
		defer file.Close()
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
