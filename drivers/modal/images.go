package modal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/codes"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// imageMemory is how long an image's ID is used without asking Modal. Asking on
// each create was seen to be rate limited.
const imageMemory = 24 * time.Hour

// createWithImage creates the sandbox with the remembered image, and once more
// with a fresh one if Modal does not know the former any more. asked says whether
// Modal was asked for a sandbox when it failed, and not only for the image.
func (d *Driver) createWithImage(ctx context.Context, app *modalsdk.App, spec *plugin.SandboxSpec, params *modalsdk.SandboxCreateParams, events plugin.CreateEvents) (sb *modalsdk.Sandbox, asked bool, err error) {
	if id := d.rememberedImage(spec.Image); id != "" {
		sb, err := d.createOnce(ctx, app, &modalsdk.Image{ImageID: id}, spec, params)
		if !blamesImage(err) {
			return sb, true, err
		}
		d.forgetImage(spec.Image)
	}
	image, err := d.buildImage(ctx, app, spec.Image, events)
	if err != nil {
		return nil, false, err
	}
	d.rememberImage(spec.Image, image.ImageID)
	sb, err = d.createOnce(ctx, app, image, spec, params)
	return sb, true, err
}

func (d *Driver) createOnce(ctx context.Context, app *modalsdk.App, image *modalsdk.Image, spec *plugin.SandboxSpec, params *modalsdk.SandboxCreateParams) (*modalsdk.Sandbox, error) {
	client, err := d.sdk()
	if err != nil {
		return nil, err
	}
	// Asked for at the last moment: building the image has taken its time.
	if params.Timeout, err = lifetime(spec.ExpiresAt); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, createLimit)
	defer cancel()
	return client.Sandboxes.Create(ctx, app, image, params)
}

func (d *Driver) buildImage(ctx context.Context, app *modalsdk.App, ref string, events plugin.CreateEvents) (*modalsdk.Image, error) {
	client, err := d.sdk()
	if err != nil {
		return nil, err
	}
	events.Progress(plugin.Progress{Message: "preparing the image " + ref + " at Modal (minutes on its first use)"})
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	image, err := client.Images.FromRegistry(ref, nil).Build(ctx, app, nil)
	if err != nil {
		return nil, notFoundIsInvalid(classify(err, "preparing the image %s at Modal", ref))
	}
	return image, nil
}

// blamesImage says whether a create failed in a way that a forgotten or expired
// image explains.
func blamesImage(err error) bool {
	switch code(err) {
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument:
		return true
	default:
		return errors.As(err, new(modalsdk.NotFoundError))
	}
}

// imageFile is where an image's ID is remembered. IDs belong to a workspace and
// an environment, so those are part of the name; the token only as a digest.
func (d *Driver) imageFile(ref string) string {
	// A file that cannot be read has failed the call before.
	active, name, _ := activeProfile()
	key := strings.Join([]string{os.Getenv("MODAL_SERVER_URL"), cmp.Or(os.Getenv("MODAL_TOKEN_ID"), active.TokenID), name,
		d.settings.Environment, os.Getenv("MODAL_ENVIRONMENT"), os.Getenv("MODAL_IMAGE_BUILDER_VERSION"), ref}, "\x00")
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(d.config.StateDir, "images", hex.EncodeToString(sum[:16]))
}

func (d *Driver) rememberedImage(ref string) string {
	info, err := os.Stat(d.imageFile(ref))
	if err != nil {
		return ""
	}
	// One from the future was remembered while the clock was wrong.
	if age := time.Since(info.ModTime()); age < 0 || age > imageMemory {
		return ""
	}
	content, err := os.ReadFile(d.imageFile(ref))
	if err != nil || !strings.HasPrefix(string(content), "im-") {
		return ""
	}
	return string(content)
}

// rememberImage is an optimisation: that it fails costs one call next time.
func (d *Driver) rememberImage(ref, id string) {
	file := d.imageFile(ref)
	d.removeStale(filepath.Dir(file))
	if err := replaceFile(file, id); err != nil {
		d.config.Logger.Warn("the image's ID is not remembered", "image", ref, "error", err)
	}
}

// replaceFile writes a small file whole or not at all, since other processes
// read it meanwhile. It need not survive a crash of the machine.
func replaceFile(file, content string) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = temp.WriteString(content)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}

func (d *Driver) forgetImage(ref string) {
	if err := os.Remove(d.imageFile(ref)); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.config.Logger.Warn("the image's ID is not forgotten", "image", ref, "error", err)
	}
}
