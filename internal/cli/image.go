package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/host"
	"github.com/sandboxctl/sandboxctl/internal/spec"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func (a *App) newImageCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "Look after the images that a driver keeps",
		Long: `Drivers that make sandboxes from images of their own keep them on this machine, so that
the next create needs no network. An image is fetched when a create names it for the first
time; from then on it is used as it is, until it is pulled again.`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return command.Help()
		},
	}
	command.AddCommand(a.newImageLsCommand(), a.newImagePullCommand(), a.newImageRmCommand(), a.newImagePruneCommand())
	return command
}

// imageDriver starts the driver whose images are meant, which has to be closed.
func (a *App) imageDriver(ctx context.Context) (*host.Driver, error) {
	driver, err := a.startDriver(ctx, a.config.Driver)
	if err != nil {
		return nil, err
	}
	if !driver.Info.Capabilities.ImageStore {
		driver.Close()
		return nil, fromDriver(a.config.Driver, plugin.Refusedf("image", "driver %s keeps no images on this machine: its backend fetches them", a.config.Driver).
			WithHint("name a driver that does, with --driver local"))
	}
	return driver, nil
}

// imageRow is an image in JSON.
type imageRow struct {
	// References are the names that it was asked for by. It has none when a newer image
	// has taken its name.
	References []string  `json:"references"`
	Digest     string    `json:"digest"`
	Driver     string    `json:"driver"`
	SizeBytes  uint64    `json:"size_bytes"`
	PulledAt   time.Time `json:"pulled_at"`
	// LastUsedAt is when a sandbox was last made from it.
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	// Sandboxes counts the live ones that were made from it.
	Sandboxes uint32 `json:"sandboxes"`
}

func describeImage(driver string, image plugin.Image) imageRow {
	row := imageRow{
		References: append([]string{}, image.References...), Digest: image.Digest, Driver: driver,
		SizeBytes: image.SizeBytes, PulledAt: image.PulledAt, Sandboxes: image.Sandboxes,
	}
	if !image.LastUsedAt.IsZero() {
		row.LastUsedAt = &image.LastUsedAt
	}
	return row
}

// name is what people call the image.
func (r *imageRow) name() string {
	if len(r.References) == 0 {
		return "-"
	}
	return strings.Join(r.References, ", ")
}

// shortDigest is enough of a digest to name an image with.
func shortDigest(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return hex[:min(len(hex), 12)]
}

// imageErrors are the failures of a command that works on several images.
type imageErrors struct {
	Errors []output.Error `json:"errors"`
}

func (e *imageErrors) fail(driver string, err error) {
	err = fromDriver(driver, err)
	told, _ := describeFailure(err)
	told.Cause = err
	e.Errors = append(e.Errors, *told)
}

// outcome returns the single failure as it is, and several as a partial one.
func (e *imageErrors) outcome(done int) error {
	switch {
	case len(e.Errors) == 0:
		return nil
	case len(e.Errors) == 1 && done == 0:
		return e.Errors[0].Cause
	}
	var texts []string
	for _, each := range e.Errors {
		texts = append(texts, each.Message)
	}
	return &hintedError{
		&partialError{what: "removing images (" + strings.Join(texts, "; ") + ")", failed: len(e.Errors), total: len(e.Errors) + done},
		e.Errors[0].Hint,
	}
}

// needImage refuses a command line without one.
func needImage(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("name an image; `sandboxctl image ls` lists those that are here")
	}
	return checkImages(args)
}

// checkImages says whether drivers can be told of the images.
func checkImages(references []string) error {
	for _, each := range references {
		if err := spec.CheckText(map[string]string{"the image": each}); err != nil {
			return err
		}
	}
	return nil
}

// showProgress tells people how far a driver is.
func (a *App) showProgress(progress plugin.Progress) {
	if progress.Total == 0 {
		a.printer.Status("%s", progress.Message)
		return
	}
	a.printer.Status("%s (%d%%)", progress.Message, progress.Current*100/progress.Total)
}
