package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/config"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func (a *App) newImagePruneCommand() *cobra.Command {
	var olderThan string
	command := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Remove the images that no sandbox uses",
		Args:  noArgs,
	}
	flags := command.Flags()
	flags.String("driver", "", "whose images")
	flags.StringVar(&olderThan, "older-than", "", "only those that were neither pulled nor used for this `DURATION`")
	return a.runs(command, func(ctx context.Context, _ []string) (output.Result, error) {
		unused := time.Duration(0)
		if olderThan != "" {
			var err error
			if unused, err = config.ParseDuration("--older-than", olderThan); err != nil {
				return nil, &usageError{err}
			}
		}
		return a.runImagePrune(ctx, unused)
	})
}

// imagePruneResult is the JSON of image prune.
type imagePruneResult struct {
	output.Header
	// Removed names images by their digests.
	Removed []removedImage `json:"removed"`
	imageErrors
}

func (r *imagePruneResult) Text(p *output.Printer) {
	if len(r.Removed) == 0 && len(r.Errors) == 0 {
		p.Note("Nothing to remove.")
	}
	for _, removed := range r.Removed {
		p.Line("%s", output.Printable(removed.Image))
	}
	noteFreed(p, r.Removed)
}

func (a *App) runImagePrune(ctx context.Context, unused time.Duration) (output.Result, error) {
	driver, err := a.imageDriver(ctx)
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	result := &imagePruneResult{Removed: []removedImage{}, imageErrors: imageErrors{Errors: []output.Error{}}}
	images, err := driver.ListImages(ctx)
	if err != nil {
		return result, fromDriver(driver.Name(), err)
	}
	before := a.Now().Add(-unused)
	for _, image := range images {
		if image.Sandboxes > 0 || image.PulledAt.After(before) || image.LastUsedAt.After(before) {
			continue
		}
		freed, err := driver.RemoveImage(ctx, image.Digest)
		switch {
		case plugin.KindOf(err) == plugin.KindNotFound:
			// Somebody else was faster.
		case err != nil:
			result.fail(driver.Name(), err)
		default:
			result.Removed = append(result.Removed, removedImage{Image: image.Digest, FreedBytes: freed})
		}
	}
	return result, result.outcome(len(result.Removed))
}
