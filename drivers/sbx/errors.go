package sbx

import (
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func notSignedIn() *plugin.Error {
	return plugin.Errorf(plugin.KindAuth, "sbx is not signed in to Docker").WithHint("Run `sbx login` once.")
}

func noPolicy() *plugin.Error {
	return plugin.Errorf(plugin.KindAuth, "sbx has no network policy yet, and creates nothing without one").
		WithHint("Run `sbx policy init deny-all` once; see the page on the sbx driver for the other presets.")
}

// cutStream is what sbx, like everything written in Go, says of a stream that ended early.
const cutStream = "unexpected EOF"

// signs are texts by which sbx's failures can be told apart: its exit code is 1
// for all of them. Texts are lower case; the first that is found decides.
var signs = []struct {
	texts []string
	error func(what, line string) *plugin.Error
}{
	{[]string{"not authenticated to docker", "sign in with: sbx login", "please sign in to docker"}, func(_, _ string) *plugin.Error { return notSignedIn() }},
	{[]string{"global network policy has not been initialized"}, func(_, _ string) *plugin.Error { return noPolicy() }},
	{[]string{"429 too many requests", "toomanyrequests", ": 429"}, of(plugin.KindRateLimited, "Docker Hub limits how often sandboxes are created; wait a minute and create fewer at once.")},
	{[]string{"below the minimum of", "invalid memory"}, func(what, line string) *plugin.Error {
		return plugin.Refusedf("--memory", "cannot %s: %s", what, line).WithHint("sbx gives a sandbox at least 1 GiB, from version 0.43 on 512 MiB.")
	}},
	{[]string{"pull failed for image", "failed to resolve reference"}, of(plugin.KindInvalid, "Check the image's name. sbx pulls from registries; images of the local Docker are not visible to it unless they were loaded with `sbx template load`.")},
	{[]string{"mount policy denied"}, of(plugin.KindRefused, "The mount policy of sbx does not allow the driver's workspace directory. Look at `sbx policy ls --type filesystem`.")},
	{[]string{"its source is not in your allowlist"}, of(plugin.KindRefused, "")},
	// A crash leaves both behind; another name helps (docker/sbx-releases#129, #181, #353).
	{[]string{"already exists", "failed to create network"}, of(plugin.KindConflict, "")},
	{[]string{"kvm error", "/dev/kvm", "krun_start_enter"}, of(plugin.KindUnavailable, "This machine cannot start microVMs as this user. On Linux: is virtualisation on, and are you in the group kvm? `sbx diagnose` says more.")},
	{[]string{"io.containerd.transfer.v1"}, of(plugin.KindUnavailable, "sbx and its daemon are of different versions. Run `sbx daemon stop` and try again.")},
	{[]string{"unable to find user", "unable to find group"}, of(plugin.KindInvalid, "Name a user of the image, or a number.")},
	{[]string{`"sh": executable file not found`}, of(plugin.KindInvalid, "Take an image with a shell: commands run under one here.")},
	{[]string{"no space left on device"}, of(plugin.KindUnavailable, "Free some disk space on this machine.")},
	{[]string{
		"daemon connection refused", "no sandbox executor available", "client.timeout exceeded", "context deadline exceeded",
		"ensure daemon", "500 internal server error", strings.ToLower(cutStream),
	}, of(plugin.KindUnavailable, "Look at `sbx diagnose` and the daemon's log.")},
}

func of(kind plugin.Kind, hint string) func(what, line string) *plugin.Error {
	return func(what, line string) *plugin.Error {
		err := plugin.Errorf(kind, "cannot %s: %s", what, line)
		err.Hint = hint
		return err
	}
}

// explain turns what a failed call printed into an error. What completes "cannot".
func explain(what, text string) *plugin.Error {
	// What sbx prints besides its answer has the words of failures, too.
	lower := strings.ToLower(withoutNoise(text))
	for _, sign := range signs {
		for _, wanted := range sign.texts {
			if strings.Contains(lower, wanted) {
				return sign.error(what, errorLine(text))
			}
		}
	}
	return plugin.Errorf(plugin.KindInternal, "cannot %s: %s", what, errorLine(text))
}

func withoutNoise(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !isNoise(strings.TrimSpace(line)) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// errorLine is the line of an output that says what went wrong.
func errorLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"ERROR: ", "Error: "} {
			if said, ok := strings.CutPrefix(line, prefix); ok {
				return said
			}
		}
		if line != "" && !isNoise(line) && last == "" {
			last = line
		}
	}
	if last == "" {
		return "sbx failed and did not say why"
	}
	return last
}

// isNoise recognises what any call may print besides its answer: the daemon's start
// header, warnings, and the box that tells of an update.
func isNoise(line string) bool {
	for _, prefix := range []string{"Starting sandboxd", "Daemon started", "Logs:", "Waiting for the previous sandboxd", "WARN", "╭", "│", "╰", "Sandbox "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}
