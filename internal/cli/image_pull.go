package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
)

func (a *App) newImagePullCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Fetch an image, or a newer one of the same name",
		Example: `  sandboxctl image pull python:3.12-slim
  sandboxctl image pull oci:./layout
  sandboxctl image pull docker-archive:app.tar`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name exactly one image, not %d", len(args))
			}
			return checkImages(args)
		},
	}
	command.Flags().String("driver", "", "who is to keep it")
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		return a.runImagePull(ctx, args[0])
	})
}

// imagePullResult is the JSON of image pull.
type imagePullResult struct {
	output.Header
	imageRow
}

func (r *imagePullResult) Text(p *output.Printer) { p.Line("%s", output.Printable(r.Digest)) }

func (a *App) runImagePull(ctx context.Context, reference string) (output.Result, error) {
	driver, err := a.imageDriver(ctx)
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	image, err := driver.PullImage(ctx, reference, a.showProgress)
	if err != nil {
		return nil, fromDriver(driver.Name(), err)
	}
	return &imagePullResult{imageRow: describeImage(driver.Name(), *image)}, nil
}
