package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sandboxctl/sandboxctl/internal/config"
	"github.com/sandboxctl/sandboxctl/internal/ledger"
	"github.com/sandboxctl/sandboxctl/internal/spec"
	"github.com/sandboxctl/sandboxctl/plugin"
)

// createOptions are the flags that create and run share. --driver and --ttl are read
// through the configuration, which they override.
type createOptions struct {
	name, image, workdir, memory, disk, network, idleTimeout, gpu string

	cpus                          float64
	pids                          uint32
	env, envFiles, labels         []string
	allowHosts, allowCIDRs, extra []string
}

// flags registers everything but env, which means something else to run.
func (o *createOptions) flags(flags *pflag.FlagSet) {
	flags.String("driver", "", "the driver to use (default: the configuration's, or local on Linux)")
	flags.StringVar(&o.name, "name", "", "a name for the sandbox, unique among yours (default: its id)")
	flags.StringVar(&o.image, "image", "", "the image to start from (default: the driver's)")
	flags.StringArrayVar(&o.labels, "label", nil, "a label, `K=V`; may be repeated")
	flags.Float64Var(&o.cpus, "cpus", 0, "the most CPUs it may use, such as 1.5")
	flags.StringVar(&o.memory, "memory", "", "the most memory it may use, a `SIZE` such as 512m")
	flags.StringVar(&o.disk, "disk", "", "the most it may write to its file system, a `SIZE` such as 2g")
	flags.Uint32Var(&o.pids, "pids", 0, "the most processes and threads it may have at a time, a `NUMBER`")
	flags.StringVar(&o.gpu, "gpu", "", "a GPU, in the driver's own terms")
	flags.StringVar(&o.network, "network", "", "what it may reach: none (default) or open")
	flags.StringArrayVar(&o.allowHosts, "allow-host", nil, "let it reach this `HOST` and nothing else; a leading *. stands for all names below; may be repeated")
	flags.StringArrayVar(&o.allowCIDRs, "allow-cidr", nil, "let it reach this address range and nothing else or, with --network open, this private range as well; may be repeated")
	flags.String("ttl", "", "how long it may live, a `DURATION` such as 90m; 0 for no end (default 1h)")
	flags.StringVar(&o.idleTimeout, "idle-timeout", "", "remove it after this long without a command, where the driver can")
	flags.StringArrayVar(&o.extra, "opt", nil, "a driver option, `K=V`; may be repeated")
}

func (o *createOptions) envFlags(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&o.env, "env", "e", nil, "a variable, `K=V`, or K to take it from here; may be repeated")
	flags.StringArrayVar(&o.envFiles, "env-file", nil, "a `FILE` of K=V lines; may be repeated")
}

// spec checks the flags and turns them into a request. Its errors are about usage.
func (o *createOptions) spec(a *App) (*spec.Spec, error) {
	request, err := o.parse(a)
	if err != nil {
		return nil, &usageError{err}
	}
	return request, nil
}

func (o *createOptions) parse(a *App) (*spec.Spec, error) {
	if o.name != "" {
		if err := ledger.ValidateName(o.name); err != nil {
			return nil, err
		}
	}
	request := &spec.Spec{Image: o.image, Workdir: o.workdir, CPUs: o.cpus, PIDs: o.pids, GPU: o.gpu, TTL: a.config.TTL}
	var err error
	if o.cpus < 0 || o.cpus != o.cpus || o.cpus > 4096 {
		return nil, fmt.Errorf("--cpus %v: take a number above zero", o.cpus)
	}
	if err := spec.CheckText(map[string]string{"--image": o.image, "--workdir": o.workdir, "--gpu": o.gpu}); err != nil {
		return nil, err
	}
	if request.MemoryBytes, err = parseLimit("--memory", o.memory); err != nil {
		return nil, err
	}
	if request.DiskBytes, err = parseLimit("--disk", o.disk); err != nil {
		return nil, err
	}
	if o.idleTimeout != "" {
		if request.IdleTimeout, err = config.ParseDuration("--idle-timeout", o.idleTimeout); err != nil {
			return nil, err
		}
	}
	if o.workdir != "" && !strings.HasPrefix(o.workdir, "/") {
		return nil, fmt.Errorf("--workdir %q: it has to be an absolute path in the sandbox", o.workdir)
	}
	if request.Network, err = spec.ParseNetwork(o.network, o.allowHosts, o.allowCIDRs); err != nil {
		return nil, err
	}
	if request.Env, err = a.readEnv(o.env, o.envFiles); err != nil {
		return nil, err
	}
	if request.Labels, err = parsePairs("--label", o.labels); err != nil {
		return nil, err
	}
	for key := range request.Labels {
		if key == plugin.LabelCreatedBy || strings.HasPrefix(key, "sandboxctl-") {
			return nil, fmt.Errorf("--label %s: this key is sandboxctl's own", key)
		}
	}
	request.Options, err = parsePairs("--opt", o.extra)
	return request, err
}

// parseLimit reads the size of a flag that was given.
func parseLimit(flag, value string) (uint64, error) {
	if value == "" {
		return 0, nil
	}
	size, err := spec.ParseSize(value)
	if err != nil {
		return 0, fmt.Errorf("%s %w", flag, err)
	}
	if size == 0 {
		return 0, fmt.Errorf("%s 0: take a size above zero, or leave it out for no limit", flag)
	}
	return size, nil
}

// readEnv reads files first and then arguments, which win.
func (a *App) readEnv(arguments, files []string) (map[string]string, error) {
	var all []string
	for _, name := range files {
		lines, err := a.readEnvFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	return spec.ParseEnv(append(all, arguments...), a.lookupEnv)
}

func (a *App) readEnvFile(name string) ([]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--env-file: %w", err)
	}
	defer file.Close()
	return spec.ReadEnvFile(io.LimitReader(file, 16<<20), name)
}

func parsePairs(flag string, arguments []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, argument := range arguments {
		key, value, found := strings.Cut(argument, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("%s %q: write KEY=VALUE", flag, argument)
		}
		if _, twice := pairs[key]; twice {
			return nil, fmt.Errorf("%s %q: the key %s is given twice", flag, argument, key)
		}
		if err := spec.CheckText(map[string]string{flag: argument}); err != nil {
			return nil, err
		}
		pairs[key] = value
	}
	return pairs, nil
}

// expiry is when a lease that starts now ends; zero for none.
func expiry(now time.Time, ttl time.Duration) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return now.Add(ttl).UTC()
}
