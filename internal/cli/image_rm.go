package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/spec"
)

func (a *App) newImageRmCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long: `Rm removes images, each by a name, by its digest, or by as much of either as no other
image begins with. An image with several names loses the one that was given. Sandboxes
that were made from an image live on, and its space is given back when they are gone.`,
		Example: `  sandboxctl image rm python:3.12-slim
  sandboxctl image rm 8f3a`,
		Args: needImage,
	}
	command.Flags().String("driver", "", "whose images")
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runImageRm(ctx, args)
	})
}

// imageRmResult is the JSON of image rm.
type imageRmResult struct {
	output.Header
	Removed []removedImage `json:"removed"`
	imageErrors
}

type removedImage struct {
	// Image is how it was named.
	Image string `json:"image"`
	// FreedBytes is zero for an image that has other names or sandboxes.
	FreedBytes uint64 `json:"freed_bytes"`
}

func (r *imageRmResult) Text(p *output.Printer) {
	for _, removed := range r.Removed {
		p.Line("%s", output.Printable(removed.Image))
	}
	noteFreed(p, r.Removed)
}

// noteFreed says how much room there is now.
func noteFreed(p *output.Printer, removed []removedImage) {
	var freed uint64
	for _, each := range removed {
		freed += each.FreedBytes
	}
	if len(removed) > 0 {
		p.Note("Freed %s.", spec.FormatSize(freed))
	}
}

func (a *App) runImageRm(ctx context.Context, names []string) (output.Result, error) {
	driver, err := a.imageDriver(ctx)
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	result := &imageRmResult{Removed: []removedImage{}, imageErrors: imageErrors{Errors: []output.Error{}}}
	for _, name := range names {
		freed, err := driver.RemoveImage(ctx, name)
		if err != nil {
			result.fail(driver.Name(), err)
			continue
		}
		result.Removed = append(result.Removed, removedImage{Image: name, FreedBytes: freed})
	}
	return result, result.outcome(len(result.Removed))
}
