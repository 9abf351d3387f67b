package modal

import (
	"context"
	"errors"
	"fmt"
	"time"

	modalsdk "github.com/modal-labs/modal-client/go"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// CheckHealth checks for credentials, and then whether Modal takes them.
func (d *Driver) CheckHealth(ctx context.Context) []plugin.Check {
	if err := d.exportEnvironment(); err != nil {
		return []plugin.Check{failedCheck("settings", err, "correct drivers.modal in the configuration, or MODAL_SERVER_URL")}
	}
	source, err := findCredentials()
	if err != nil {
		return []plugin.Check{failedCheck("credentials", err, "correct Modal's configuration file, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET")}
	}
	credentials := plugin.Check{Name: "credentials", Status: plugin.CheckOK, Detail: "from the " + source}
	return []plugin.Check{credentials, d.checkService(ctx)}
}

func (d *Driver) checkService(ctx context.Context) plugin.Check {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	begin := time.Now()
	_, err := d.app(ctx, false)
	elapsed := time.Since(begin).Round(time.Millisecond)
	switch {
	case err == nil:
		return plugin.Check{Name: "service", Status: plugin.CheckOK, Detail: fmt.Sprintf("app %s, answered in %s", d.settings.App, elapsed)}
	case errors.As(err, new(modalsdk.NotFoundError)):
		return plugin.Check{Name: "service", Status: plugin.CheckOK, Detail: fmt.Sprintf("answered in %s; the app %s is made by the first create", elapsed, d.settings.App)}
	default:
		return failedCheck("service", classify(err, "calling Modal"), "check the network, a proxy (HTTPS_PROXY) and https://status.modal.com")
	}
}

// failedCheck gives the error's own hint, or else fix.
func failedCheck(name string, err error, fix string) plugin.Check {
	check := plugin.Check{Name: name, Status: plugin.CheckFailed, Detail: err.Error(), Fix: fix}
	var typed *plugin.Error
	if errors.As(err, &typed) && typed.Hint != "" {
		check.Fix = typed.Hint
	}
	return check
}
