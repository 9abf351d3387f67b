package sbx

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// oldest and newest are the versions that the double stands for; a newer sbx is
// driven like the newest.
const (
	oldestVersion = "0.35"
	newestVersion = "0.45"
)

// CheckHealth implements plugin.HealthChecker. It stops at the first check that the
// others need.
func (d *Driver) CheckHealth(ctx context.Context) []plugin.Check {
	path, err := d.findProgram()
	if err != nil {
		return []plugin.Check{failed("sbx program", err)}
	}
	checks := []plugin.Check{{Name: "sbx program", Status: plugin.CheckOK, Detail: path}}
	p, err := d.program(ctx)
	if err != nil {
		return append(checks, failed("sbx version", err))
	}
	checks = append(checks, checkVersion(p.features))
	entries, err := p.list(ctx)
	if err != nil {
		return append(checks, failed("signed in to Docker", err))
	}
	checks = append(checks, plugin.Check{Name: "signed in to Docker", Status: plugin.CheckOK, Detail: fmt.Sprintf("%d sandboxes on this machine", len(entries))})
	return append(checks, d.checkPolicy(ctx, p), checkVirtualisation(ctx, p))
}

func failed(name string, err error) plugin.Check {
	check := plugin.Check{Name: name, Status: plugin.CheckFailed, Detail: err.Error()}
	if typed, ok := err.(*plugin.Error); ok {
		check.Fix = typed.Hint
	}
	return check
}

func checkVersion(f features) plugin.Check {
	check := plugin.Check{Name: "sbx version", Status: plugin.CheckOK, Detail: f.Version}
	switch minor := minorVersion(f.Version); {
	case minor < minorVersion(oldestVersion):
		check.Status = plugin.CheckWarning
		check.Detail += " is older than " + oldestVersion + ", the oldest that this driver was built for"
		check.Fix = "Upgrade sbx."
	case minor > minorVersion(newestVersion):
		check.Detail += fmt.Sprintf(" (newer than %s; driven like that)", newestVersion)
	}
	return check
}

// minorVersion orders sbx's versions, which are 0.N so far.
func minorVersion(version string) int {
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	return major*1000 + minor
}

// checkPolicy says which network modes this machine's policy leaves possible.
func (d *Driver) checkPolicy(ctx context.Context, p *program) plugin.Check {
	const name = "network policy"
	global, err := p.rules(ctx, "")
	if err != nil {
		return failed(name, err)
	}
	allowed := global.resources("allow", false)
	if len(allowed) == 0 {
		return plugin.Check{Name: name, Status: plugin.CheckOK, Detail: "deny-all: every --network mode and --allow-host can be kept (if `sbx policy init` was ever run)"}
	}
	check := plugin.Check{Name: name, Status: plugin.CheckOK, Detail: "allows " + some(allowed) + " to every sandbox, so --allow-host is refused"}
	if !p.features.DenyNetwork {
		check.Status = plugin.CheckWarning
		check.Detail += ", and --network none, too, by this version of sbx"
		check.Fix = "Upgrade sbx to 0.38 or later; or `sbx policy reset`, which stops all sandboxes, then `sbx policy init deny-all`."
	}
	return check
}

func checkVirtualisation(ctx context.Context, p *program) plugin.Check {
	const name = "virtualisation"
	out, err := p.run(ctx, "diagnose", "-o", "json")
	if err != nil {
		return failed(name, err)
	}
	var answer struct {
		Checks []struct{ Name, Status, Message, Hint string }
	}
	// Its exit code says that any check failed, which need not be this one.
	if err := firstJSON(out.stdout, &answer); err != nil {
		return plugin.Check{Name: name, Status: plugin.CheckWarning, Detail: "sbx diagnose gave no answer that can be read", Fix: "Run `sbx diagnose`."}
	}
	for _, check := range answer.Checks {
		if !strings.HasPrefix(strings.ToLower(check.Name), "virtuali") {
			continue
		}
		if strings.EqualFold(check.Status, "fail") {
			fix := check.Hint
			if fix == "" && runtime.GOOS == "linux" {
				fix = "Turn on virtualisation in the firmware and join the group kvm."
			}
			return plugin.Check{Name: name, Status: plugin.CheckFailed, Detail: check.Message, Fix: fix}
		}
		return plugin.Check{Name: name, Status: plugin.CheckOK, Detail: check.Message}
	}
	return plugin.Check{Name: name, Status: plugin.CheckWarning, Detail: "sbx diagnose says nothing about it", Fix: "Run `sbx diagnose`."}
}
