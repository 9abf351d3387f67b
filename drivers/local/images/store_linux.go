package images

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/sandboxctl/sandboxctl/drivers/local/images/erofs"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// Store is a directory with images: for each, HASH.erofs and, with what is known about
// it, HASH.json. HASH.partial is one that is being made by who holds a lock on it.
type Store struct {
	dir string
}

// NewStore returns the store in a directory, which is made when it is needed.
func NewStore(dir string) *Store { return &Store{dir: dir} }

const (
	fileSuffix    = ".erofs"
	recordSuffix  = ".json"
	partialSuffix = ".partial"
	lockName      = "lock"
)

func (s *Store) file(digest, suffix string) string {
	return filepath.Join(s.dir, strings.Replace(digest, ":", "-", 1)+suffix)
}

// lock is the exclusive right to change which images there are. It is held for moments.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	file, err := waitForLock(ctx, filepath.Join(s.dir, lockName), func() {})
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	return func() { _ = file.Close() }, nil
}

func (s *Store) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return plugin.Errorf(plugin.KindUnavailable, "the local driver's images in %s cannot be used: %w", s.dir, err)
}

// List returns the images, in the order in which they were pulled.
func (s *Store) List() ([]*Image, error) {
	names, err := filepath.Glob(filepath.Join(s.dir, "*"+recordSuffix))
	if err != nil {
		return nil, err
	}
	var images []*Image
	for _, name := range names {
		if image := s.load(name); image != nil {
			images = append(images, image)
		}
	}
	slices.SortFunc(images, func(a, b *Image) int { return a.PulledAt.Compare(b.PulledAt) })
	return images, nil
}

// load reads a record. One without a whole file to it is none, as if it had not been
// pulled.
func (s *Store) load(record string) *Image {
	content, err := os.ReadFile(record)
	if err != nil {
		return nil
	}
	var image Image
	if json.Unmarshal(content, &image) != nil || image.Layout != storedLayout || s.file(image.Digest, recordSuffix) != record {
		return nil
	}
	image.path = s.file(image.Digest, fileSuffix)
	file, err := os.Open(image.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	// To look at all of it would take longer than the sandbox's start.
	info, err := file.Stat()
	if err != nil || info.Size() != image.Size || !erofs.Begins(file) {
		return nil
	}
	if used := info.ModTime(); used.After(neverUsed) {
		image.LastUsedAt = used.UTC().Truncate(time.Second)
	}
	if raw, ok := info.Sys().(*syscall.Stat_t); ok {
		image.Sandboxes, image.Allocated = int(raw.Nlink)-1, raw.Blocks*512
	}
	return &image
}

// neverUsed is the file's time before a sandbox is made from it. Each use sets it, which
// costs nothing to speak of.
var neverUsed = time.Unix(0, 0)

// Get returns the image that a reference means. One of a registry that was pulled
// before is taken as it is, without a look at the network; else it is pulled.
func (s *Store) Get(ctx context.Context, reference string, progress Progress) (*Image, error) {
	from, err := parse(reference)
	if err != nil {
		return nil, err
	}
	if from.cached() {
		known, err := s.List()
		if err != nil {
			return nil, err
		}
		for _, image := range known {
			if slices.Contains(image.References, from.canonical()) {
				return image, nil
			}
		}
	}
	return s.pull(ctx, from, progress)
}

// Pull fetches the image that a reference means now.
func (s *Store) Pull(ctx context.Context, reference string, progress Progress) (*Image, error) {
	from, err := parse(reference)
	if err != nil {
		return nil, err
	}
	return s.pull(ctx, from, progress)
}

func (s *Store) pull(ctx context.Context, from source, progress Progress) (*Image, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, s.broken(ctx, err)
	}
	content, err := from.resolve(ctx)
	if err != nil {
		return nil, err
	}
	return s.keep(ctx, content, progress)
}

// keep stores an image, unless it is stored already. Of several processes that want
// the same one, one makes it and the others wait.
func (s *Store) keep(ctx context.Context, wanted *content, progress Progress) (*Image, error) {
	digest := wanted.digest.String()
	image, err := s.remember(ctx, wanted)
	if image != nil || err != nil {
		return image, err
	}
	partial, err := waitForLock(ctx, s.file(digest, partialSuffix), func() {
		progress(plugin.Progress{Message: "waiting for another process that pulls " + wanted.display})
	})
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	defer partial.Close()
	// Who held the lock before may have stored it.
	image, err = s.remember(ctx, wanted)
	if image != nil || err != nil {
		_ = os.Remove(partial.Name())
		return image, err
	}
	if err = partial.Truncate(0); err == nil {
		err = wanted.write(ctx, partial, progress)
	}
	if err != nil {
		_ = os.Remove(partial.Name())
		return nil, wanted.writeError(ctx, err)
	}
	return s.publish(ctx, wanted, partial)
}

// remember returns the stored image, if there is one, which has the reference from
// now on.
func (s *Store) remember(ctx context.Context, wanted *content) (*Image, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	image := s.load(s.file(wanted.digest.String(), recordSuffix))
	if image == nil {
		return nil, nil
	}
	return image, s.name(image, wanted.reference)
}

// publish gives a finished image its name.
func (s *Store) publish(ctx context.Context, made *content, partial *os.File) (*Image, error) {
	// The work is done: it is not thrown away for a canceled context.
	ctx = context.WithoutCancel(ctx)
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	info, err := partial.Stat()
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	image := &Image{
		Digest: made.digest.String(), Size: info.Size(), PulledAt: time.Now().UTC().Truncate(time.Second),
		Env: made.config.Env, Workdir: made.config.WorkingDir, User: made.config.User, Layout: storedLayout,
	}
	image.path = s.file(image.Digest, fileSuffix)
	if err := os.Chtimes(partial.Name(), neverUsed, neverUsed); err != nil {
		return nil, s.broken(ctx, err)
	}
	if err := os.Rename(partial.Name(), image.path); err != nil {
		return nil, s.broken(ctx, err)
	}
	if err := s.name(image, made.reference); err != nil {
		return nil, err
	}
	if image = s.load(s.file(image.Digest, recordSuffix)); image == nil {
		return nil, s.broken(ctx, errors.New("what was stored just now is damaged"))
	}
	return image, nil
}

// name gives a reference to an image and takes it from whichever had it. The caller
// holds the lock.
func (s *Store) name(named *Image, reference string) error {
	images, err := s.List()
	if err != nil {
		return err
	}
	for _, image := range images {
		at := slices.Index(image.References, reference)
		if image.Digest == named.Digest || at < 0 {
			continue
		}
		image.References = slices.Delete(image.References, at, at+1)
		if err := s.save(image); err != nil {
			return err
		}
	}
	if !slices.Contains(named.References, reference) {
		named.References = append(named.References, reference)
	}
	return s.save(named)
}

func (s *Store) save(image *Image) error {
	text, err := json.Marshal(image)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(s.file(image.Digest, recordSuffix), text, 0o600, renameio.WithTempDir(s.dir)); err != nil {
		return s.broken(context.Background(), err)
	}
	return nil
}

// Use gives a sandbox the image as a file under a name of its own, so that it keeps
// the image whatever becomes of the stored one.
func (s *Store) Use(image *Image, name string) error {
	err := os.Link(image.path, name)
	if errors.Is(err, fs.ErrNotExist) {
		return plugin.Errorf(plugin.KindConflict, "the image %s was removed at this moment", image.Name()).WithHint("try again; it is pulled then")
	}
	if err == nil {
		now := time.Now()
		err = os.Chtimes(name, now, now)
	}
	if err != nil {
		return plugin.Errorf(plugin.KindUnavailable, "the image %s cannot be used: %w", image.Name(), err)
	}
	return nil
}

// Name is the image's name for people.
func (i *Image) Name() string {
	if len(i.References) == 0 {
		return i.Digest
	}
	return familiar(i.References[0])
}

// Described is the image in the SDK's terms.
func (i *Image) Described() plugin.Image {
	described := plugin.Image{
		Digest: i.Digest, SizeBytes: uint64(i.Allocated), PulledAt: i.PulledAt, LastUsedAt: i.LastUsedAt, Sandboxes: uint32(i.Sandboxes),
	}
	for _, reference := range i.References {
		described.References = append(described.References, familiar(reference))
	}
	return described
}
