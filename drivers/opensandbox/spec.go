package opensandbox

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// request checks everything that can be known before anything is created.
func (d *Driver) request(spec *plugin.SandboxSpec) (*createRequest, error) {
	limits, err := limitsFor(spec)
	if err != nil {
		return nil, err
	}
	ttl, err := ttlFor(spec)
	if err != nil {
		return nil, err
	}
	if spec.Image == "" || strings.ContainsAny(spec.Image, " \t\r\n") {
		return nil, plugin.Errorf(plugin.KindInvalid, "%q is not an image reference", spec.Image)
	}
	if spec.Workdir != "" && (!strings.HasPrefix(spec.Workdir, "/") || strings.ContainsRune(spec.Workdir, 0)) {
		return nil, plugin.Errorf(plugin.KindInvalid, "the working directory %q is not absolute, or no path", spec.Workdir)
	}
	switch value := spec.Options[optionNamesOnly]; value {
	case "", "true", "false":
	default:
		return nil, plugin.Errorf(plugin.KindInvalid, "--opt %s is %q, want true or false", optionNamesOnly, value)
	}
	if err := checkTargets(spec.Network); err != nil {
		return nil, err
	}
	labels := labelsFor(spec)
	if err := checkLabels(labels); err != nil {
		return nil, err
	}
	env, err := d.environment(spec)
	if err != nil {
		return nil, err
	}
	return &createRequest{
		Image: imageSpec{URI: spec.Image}, Entrypoint: keepAliveEntrypoint, Timeout: ttl, ResourceLimits: limits,
		Env: env, Metadata: labels, NetworkPolicy: policyFor(spec.Network),
	}, nil
}

// environment adds execd's token and the default directory to the user's variables.
func (d *Driver) environment(spec *plugin.SandboxSpec) (map[string]string, error) {
	for _, name := range slices.Sorted(maps.Keys(spec.Env)) {
		if strings.HasPrefix(name, "EXECD_") {
			return nil, plugin.Errorf(plugin.KindInvalid, "the environment variable %s is reserved: names with EXECD_ configure the daemon in the sandbox", name)
		}
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(spec.Env[name], 0) {
			return nil, plugin.Errorf(plugin.KindInvalid, "%q cannot be set as an environment variable: a name has no =, and neither it nor the value a NUL byte", name)
		}
		// The server takes JSON, which would replace such bytes.
		if !utf8.ValidString(name) || !utf8.ValidString(spec.Env[name]) {
			return nil, plugin.Errorf(plugin.KindInvalid, "the environment variable %q is not UTF-8, and OpenSandbox stores nothing else", name).
				WithHint("give it to each command instead: exec --env")
		}
	}
	token, err := d.secret.token(spec.ID)
	if err != nil {
		return nil, err
	}
	env := maps.Clone(spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	env["EXECD_ACCESS_TOKEN"] = token
	if spec.Workdir != "" {
		env[workdirVar] = spec.Workdir
	}
	return env, nil
}

// ttlFor is the lifetime in whole seconds, zero for none.
func ttlFor(spec *plugin.SandboxSpec) (int64, error) {
	if spec.ExpiresAt.IsZero() {
		return 0, nil
	}
	ttl := int64(math.Ceil(time.Until(spec.ExpiresAt).Seconds()))
	least := int64(minTTL / time.Second)
	// A ttl of exactly the least has become a little less on its way here.
	if ttl < least && spec.ExpiresAt.Sub(spec.CreatedAt) >= minTTL {
		ttl = least
	}
	if ttl < least {
		return 0, plugin.Refusedf("--ttl", "OpenSandbox keeps lifetimes of %d seconds and more", least)
	}
	return ttl, nil
}

// limitsFor writes quantities that every server release reads; older ones silently ignore what they do not.
func limitsFor(spec *plugin.SandboxSpec) (map[string]string, error) {
	limits := map[string]string{}
	if spec.CPUs != 0 {
		milli := math.Round(spec.CPUs * 1000)
		if !(milli >= 1) || milli > 1e9 {
			return nil, plugin.Errorf(plugin.KindInvalid, "--cpus %v is not a number of CPUs; the smallest is 0.001", spec.CPUs)
		}
		limits["cpu"] = strconv.FormatInt(int64(milli), 10) + "m"
	}
	if spec.MemoryBytes != 0 {
		const least = 6 << 20 // Docker's own minimum
		if spec.MemoryBytes < least || spec.MemoryBytes > math.MaxInt64 {
			return nil, plugin.Refusedf("--memory", "a sandbox cannot have %d bytes of memory; the least is 6 MiB", spec.MemoryBytes)
		}
		limits["memory"] = strconv.FormatUint(spec.MemoryBytes, 10)
	}
	if spec.GPU != "" {
		if n, err := strconv.ParseUint(spec.GPU, 10, 8); spec.GPU != "all" && (err != nil || n == 0) {
			return nil, plugin.Refusedf("--gpu", "OpenSandbox takes a number of GPUs or all, not %q", spec.GPU)
		}
		limits["gpu"] = spec.GPU
	}
	return limits, nil
}
