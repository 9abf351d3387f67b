package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/spec"
)

func (a *App) newImageLsCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images that are here",
		Args:    noArgs,
	}
	command.Flags().String("driver", "", "whose images")
	return a.runs(command, func(ctx context.Context, _ []string) (output.Result, error) {
		return a.runImageLs(ctx)
	})
}

// imageLsResult is the JSON of image ls.
type imageLsResult struct {
	output.Header
	Images []imageRow `json:"images"`

	now time.Time
}

func (r *imageLsResult) Text(p *output.Printer) {
	if len(r.Images) == 0 {
		p.Note("No images. A create with --image fetches one, and so does `sandboxctl image pull`.")
		return
	}
	var rows [][]string
	for _, image := range r.Images {
		used := "never"
		if image.LastUsedAt != nil {
			used = output.Ago(*image.LastUsedAt, r.now)
		}
		rows = append(rows, []string{
			image.name(), shortDigest(image.Digest), spec.FormatSize(image.SizeBytes), output.Ago(image.PulledAt, r.now), used,
			strconv.FormatUint(uint64(image.Sandboxes), 10),
		})
	}
	p.Table([]string{"IMAGE", "DIGEST", "SIZE", "PULLED", "USED", "SANDBOXES"}, rows)
}

func (a *App) runImageLs(ctx context.Context) (output.Result, error) {
	driver, err := a.imageDriver(ctx)
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	result := &imageLsResult{Images: []imageRow{}, now: a.Now()}
	images, err := driver.ListImages(ctx)
	if err != nil {
		return result, fromDriver(driver.Name(), err)
	}
	for _, image := range images {
		result.Images = append(result.Images, describeImage(driver.Name(), image))
	}
	return result, nil
}
