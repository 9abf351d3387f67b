package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
)

func (a *App) newDriverLsCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the drivers that are there",
		Args:    noArgs,
	}
	return a.runs(command, func(context.Context, []string) (output.Result, error) {
		return a.runDriverLs()
	})
}

// driverLsResult is the JSON of driver ls.
type driverLsResult struct {
	output.Header
	Drivers []foundDriver `json:"drivers"`
}

type foundDriver struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Source is reattach, dev_override, configured, installed or bundled.
	Source string `json:"source"`
	Path   string `json:"path"`
	// Default says that create uses it when no --driver is given.
	Default bool `json:"default"`
	// Problem is why it would not be started.
	Problem *output.Error `json:"problem,omitempty"`
}

func (r *driverLsResult) Text(p *output.Printer) {
	if len(r.Drivers) == 0 {
		p.Note("No drivers. They are looked for next to sandboxctl and in the data directory; see `sandboxctl help environment`.")
		return
	}
	var rows [][]string
	for _, driver := range r.Drivers {
		name := driver.Name
		if driver.Default {
			name += " (default)"
		}
		status := "ok"
		if driver.Problem != nil {
			status = driver.Problem.Message
		}
		rows = append(rows, []string{name, driver.Source, driver.Path, status})
	}
	p.Table([]string{"NAME", "SOURCE", "PATH", "STATUS"}, rows)
}

func (a *App) runDriverLs() (output.Result, error) {
	hosts, err := a.drivers()
	if err != nil {
		return nil, err
	}
	result := &driverLsResult{Drivers: []foundDriver{}}
	for _, found := range hosts.Discover() {
		row := foundDriver{
			Name: found.Name, Version: found.Version, Source: string(found.Source), Path: found.Path, Default: found.Name == a.config.Driver,
		}
		if found.Problem != nil {
			row.Problem, _ = describeFailure(found.Problem)
		}
		result.Drivers = append(result.Drivers, row)
	}
	return result, nil
}
