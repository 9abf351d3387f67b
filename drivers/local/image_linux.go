package local

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// registryVariables are what tells where docker's and podman's credentials are.
var registryVariables = []plugin.EnvVar{
	{Name: "DOCKER_CONFIG", Description: "directory of docker's config.json, with the logins to registries; ~/.docker when absent"},
	{Name: "REGISTRY_AUTH_FILE", Description: "podman's file with logins to registries, used when docker has none"},
}

// setRegistryVariables makes the variables this process's own: go-containerregistry and
// docker's credential helpers look for them there and nowhere else.
func setRegistryVariables(environment map[string]string) error {
	for _, variable := range registryVariables {
		if value, ok := environment[variable.Name]; ok {
			if err := os.Setenv(variable.Name, value); err != nil {
				return plugin.Errorf(plugin.KindInvalid, "the variable %s cannot be used: %w", variable.Name, err)
			}
		}
	}
	return nil
}

// ListImages implements plugin.ImageStore.
func (d *Driver) ListImages(context.Context) ([]plugin.Image, error) {
	stored, err := d.images.List()
	if err != nil {
		return nil, err
	}
	var listed []plugin.Image
	for _, image := range stored {
		listed = append(listed, image.Described())
	}
	return listed, nil
}

// PullImage implements plugin.ImageStore.
func (d *Driver) PullImage(ctx context.Context, reference string, progress func(plugin.Progress)) (*plugin.Image, error) {
	image, err := d.images.Pull(ctx, reference, progress)
	if err != nil {
		return nil, err
	}
	described := image.Described()
	return &described, nil
}

// RemoveImage implements plugin.ImageStore.
func (d *Driver) RemoveImage(ctx context.Context, reference string) (freedBytes uint64, err error) {
	return d.images.Remove(ctx, reference)
}

// imageFile is the sandbox's own name for the file of its image.
func (s sandbox) imageFile() string { return filepath.Join(s.dir, "image.erofs") }

// provideImage gets the sandbox the image that was asked for, if one was.
func (d *Driver) provideImage(ctx context.Context, fresh sandbox, created *record, events plugin.CreateEvents) error {
	if created.Spec.Image == "" {
		return nil
	}
	// Between the two calls a prune may remove the image, but hardly every time.
	const attempts = 3
	for attempt := 1; ; attempt++ {
		image, err := d.images.Get(ctx, created.Spec.Image, events.Progress)
		if err != nil {
			return err
		}
		err = d.images.Use(image, fresh.imageFile())
		if plugin.KindOf(err) == plugin.KindConflict && attempt < attempts {
			continue
		}
		created.Image = image
		return err
	}
}

// imageAnnotations tell runsc to take the image's file as the lowest layer of the root.
func imageAnnotations(fresh sandbox) map[string]string {
	return map[string]string{
		rootfsAnnotation + "source":  fresh.imageFile(),
		rootfsAnnotation + "type":    "erofs",
		rootfsAnnotation + "overlay": "dir=" + fresh.upper(),
	}
}

// imageEnvironment is what the image's maker wants commands to have.
func (r *record) imageEnvironment() map[string]string {
	env := map[string]string{}
	if r.Image != nil {
		for _, entry := range r.Image.Env {
			if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
				env[name] = value
			}
		}
	}
	return env
}

// user is who commands run as when the caller names nobody; root when empty.
func (r *record) user() string {
	if r.Image == nil {
		return ""
	}
	return r.Image.User
}

// imageWorkdir is where the image's maker wants commands to start, or empty.
func (r *record) imageWorkdir() string {
	if r.Image == nil || r.Image.Workdir == "" {
		return ""
	}
	return path.Clean("/" + r.Image.Workdir)
}

// beginning is what the first process of a sandbox with an image says: the working
// directory can be made by nobody else, since only the guest can write to its root.
type beginning struct {
	reply, theirs *os.File
}

func newBeginning() (*beginning, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &beginning{reply: read, theirs: write}, nil
}

func (b *beginning) close() { closeAll([]*os.File{b.reply, b.theirs}) }

// beginLimit is how long the first process may take.
const beginLimit = 30 * time.Second

// wait returns when the working directory is there.
func (b *beginning) wait(ctx context.Context) error {
	_ = b.theirs.Close()
	_ = b.reply.SetReadDeadline(time.Now().Add(beginLimit))
	stop := context.AfterFunc(ctx, func() { _ = b.reply.SetReadDeadline(time.Now()) })
	defer stop()
	var said guest.Reply
	if err := json.NewDecoder(b.reply).Decode(&said); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return plugin.Errorf(plugin.KindInternal, "the sandbox's first process does not run: %w", err)
	}
	if said.Error != nil {
		failure := plugin.Errorf(plugin.KindInvalid, "the image cannot be used: %s", said.Error.Message)
		if said.Error.Reason == guest.ReasonUser {
			return failure.WithHint("the image's configuration names a user that is not in its /etc/passwd")
		}
		return failure.WithHint("name another directory with --workdir")
	}
	if !said.Done {
		return errors.New("the sandbox's first process gave no answer")
	}
	return nil
}
