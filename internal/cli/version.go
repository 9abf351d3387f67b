package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func (a *App) newVersionCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Args:  noArgs,
	}
	return a.runs(command, func(context.Context, []string) (output.Result, error) {
		return &versionResult{
			Version: a.Build.Version, Commit: a.Build.Commit, Date: a.Build.Date, Protocol: plugin.ProtocolVersion,
			OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		}, nil
	})
}

// versionResult is version's JSON.
type versionResult struct {
	output.Header
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	// Protocol is the major version of the driver protocol.
	Protocol int    `json:"protocol"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Go       string `json:"go"`
}

func (r *versionResult) Text(p *output.Printer) {
	built := ""
	if r.Commit != "" {
		built = fmt.Sprintf(" (%s, %s)", r.Commit, r.Date)
	}
	p.Line("sandboxctl %s%s, driver protocol %d, %s/%s", r.Version, built, r.Protocol, r.OS, r.Arch)
}
