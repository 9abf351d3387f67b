package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// doctorTimeout bounds the questions to one driver's backend.
const doctorTimeout = time.Minute

func (a *App) newDoctorCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "doctor [DRIVER...]",
		Short: "Check that sandboxes can be used here, and say how to mend it",
		Long: `Doctor checks the state directory and the default driver, or the drivers that are named.
It exits with 1 when something does not work.`,
	}
	return a.runs(command, func(ctx context.Context, args []string) (output.Result, error) {
		if len(args) == 0 {
			args = []string{a.config.Driver}
		}
		return a.runDoctor(ctx, args)
	})
}

// doctorResult is doctor's JSON.
type doctorResult struct {
	output.Header
	Checks []doctorCheck `json:"checks"`
}

type doctorCheck struct {
	// Driver is empty for sandboxctl itself.
	Driver string `json:"driver,omitempty"`
	Name   string `json:"name"`
	// Status is ok, warning or failed.
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

func (r *doctorResult) Text(p *output.Printer) {
	widest := 0
	for _, check := range r.Checks {
		widest = max(widest, len(check.title()))
	}
	for _, check := range r.Checks {
		status := fmt.Sprintf("%-7s", check.Status)
		switch plugin.CheckStatus(check.Status) {
		case plugin.CheckWarning:
			status = p.Caution(status)
		default:
			status = p.Mark(status, check.Status == string(plugin.CheckOK))
		}
		p.Line("%s", strings.TrimRight(fmt.Sprintf("%s %-*s  %s", status, widest, check.title(), output.Printable(check.Detail)), " "))
		if check.Fix != "" {
			p.Line("        %s", output.Printable("fix: "+check.Fix))
		}
	}
}

func (c doctorCheck) title() string {
	if c.Driver == "" {
		return output.Printable(c.Name)
	}
	return output.Printable(c.Driver + ": " + c.Name)
}

func (a *App) runDoctor(ctx context.Context, names []string) (output.Result, error) {
	result := &doctorResult{Checks: []doctorCheck{a.checkState()}}
	for _, name := range names {
		result.Checks = append(result.Checks, a.checkDriver(ctx, name)...)
	}
	for _, check := range result.Checks {
		if check.Status == string(plugin.CheckFailed) {
			return result, errors.New("not everything works here; see the fixes above")
		}
	}
	return result, nil
}

func (a *App) checkState() doctorCheck {
	check := doctorCheck{Name: "state directory", Status: string(plugin.CheckOK), Detail: a.config.StateDir}
	_, err := a.openLedger()
	if err == nil {
		err = tryToWrite(a.config.StateDir)
	}
	if err != nil {
		told, _ := describeFailure(err)
		check.Status, check.Detail = string(plugin.CheckFailed), told.Message
		check.Fix = "free some space, make it writable for you, or set SANDBOXCTL_STATE_DIR to another directory"
	}
	return check
}

func tryToWrite(dir string) error {
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString("can this be written?")
	return errors.Join(err, file.Close())
}

func (a *App) checkDriver(ctx context.Context, name string) []doctorCheck {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	start := time.Now()
	driver, err := a.startDriver(ctx, name)
	if err != nil {
		return []doctorCheck{failedCheck(name, "start", err)}
	}
	defer driver.Close()
	checks := []doctorCheck{{
		Driver: name, Name: "start", Status: string(plugin.CheckOK),
		Detail: fmt.Sprintf("version %s, started in %d ms", driver.Info.Version, time.Since(start).Milliseconds()),
	}}
	health, err := driver.CheckHealth(ctx)
	if err != nil {
		return append(checks, failedCheck(name, "health", err))
	}
	for _, check := range health {
		checks = append(checks, doctorCheck{Driver: name, Name: check.Name, Status: string(check.Status), Detail: check.Detail, Fix: check.Fix})
	}
	return checks
}

func failedCheck(driver, name string, err error) doctorCheck {
	told, _ := describeFailure(err)
	return doctorCheck{Driver: driver, Name: name, Status: string(plugin.CheckFailed), Detail: told.Message, Fix: told.Hint}
}
