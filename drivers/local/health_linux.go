package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// CheckHealth implements plugin.HealthChecker.
func (d *Driver) CheckHealth(ctx context.Context) []plugin.Check {
	return []plugin.Check{
		checkArchitecture(),
		d.checkUserNamespaces(),
		d.checkSandbox(ctx),
		describeLimits(),
		checkPython(),
	}
}

func checkArchitecture() plugin.Check {
	check := plugin.Check{Name: "processor", Status: plugin.CheckOK, Detail: runtime.GOARCH}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		check.Status, check.Fix = plugin.CheckFailed, "gVisor runs on amd64 and arm64; use another driver"
	}
	return check
}

// checkUserNamespaces looks at the switches by which distributions keep ordinary users
// from namespaces. Root needs none of them.
func (d *Driver) checkUserNamespaces() plugin.Check {
	check := plugin.Check{Name: "user namespaces", Status: plugin.CheckOK, Detail: "allowed"}
	if !d.rootless {
		check.Detail = "not needed by root"
		return check
	}
	for _, knob := range []struct{ path, bad, fix string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if content, err := os.ReadFile(knob.path); err == nil && strings.TrimSpace(string(content)) == knob.bad {
			check.Status, check.Detail, check.Fix = plugin.CheckFailed, knob.path+" is "+knob.bad, "as root: "+knob.fix
		}
	}
	return check
}

// checkSandbox makes a sandbox, runs a command in it and removes it, which is the only
// way to know that gVisor works on this kernel.
func (d *Driver) checkSandbox(ctx context.Context) plugin.Check {
	check := plugin.Check{Name: "gVisor sandbox", Status: plugin.CheckFailed, Fix: "read the message; a kernel before 4.14, a strict seccomp or AppArmor profile, or a container without ptrace can be the reason"}
	now := time.Now()
	spec := &plugin.SandboxSpec{ID: fmt.Sprintf("sb-doctor-%d-%d", os.Getpid(), now.UnixNano()), CreatedAt: now, ExpiresAt: now.Add(time.Minute)}
	made, err := d.Create(ctx, spec, ignoredEvents{})
	if err != nil {
		check.Detail = err.Error()
		return check
	}
	ref := plugin.Ref{ID: made.ID}
	status, err := d.Exec(ctx, ref, &plugin.ExecRequest{Argv: []string{"true"}, Timeout: 10 * time.Second}, &plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
	took := time.Since(now)
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	_, left := d.Destroy(cleanup, ref)
	switch {
	case err != nil:
		check.Detail = "a command could not be run: " + err.Error()
	case status.Code != 0:
		check.Detail = fmt.Sprintf("the command true ended with %d (%s)", status.Code, status.Reason)
	case left != nil:
		check.Detail = left.Error()
	default:
		return plugin.Check{Name: check.Name, Status: plugin.CheckOK, Detail: fmt.Sprintf("created and used one in %d ms", took.Milliseconds())}
	}
	return check
}

type ignoredEvents struct{}

func (ignoredEvents) Created([]byte)           {}
func (ignoredEvents) Progress(plugin.Progress) {}
func (ignoredEvents) Warn(string)              {}

// checkPython looks where sandboxes do, which is not where this user's PATH leads.
func checkPython() plugin.Check {
	for _, dir := range filepath.SplitList(guestPath) {
		path := filepath.Join(dir, "python3")
		// A link to a place that sandboxes do not see is of no use in them.
		real, err := filepath.EvalSymlinks(path)
		if err != nil || !inSystemDirectory(real) {
			continue
		}
		if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return plugin.Check{Name: "python", Status: plugin.CheckOK, Detail: path}
		}
	}
	return plugin.Check{
		Name: "python", Status: plugin.CheckWarning, Detail: "there is no python3 in /usr or /bin, so sandboxes have none",
		Fix: "install your distribution's python3 on this machine",
	}
}
