package spec

import (
	"strings"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// Refuse returns an error of kind refused when a driver cannot enforce a request, so
// that nothing is created that is less than what was asked for.
func Refuse(s *Spec, driver plugin.Info) error {
	for _, check := range []func(*Spec, plugin.Info) error{refuseFields, refuseNetwork, refuseLease, refuseOptions} {
		if err := check(s, driver); err != nil {
			return err
		}
	}
	return nil
}

func refuseFields(s *Spec, driver plugin.Info) error {
	can := driver.Capabilities.Spec
	for _, field := range []struct {
		option        string
		wanted, holds bool
	}{
		{"--image", s.Image != "" && s.Image != driver.DefaultImage, can.Image},
		{"--cpus", s.CPUs != 0, can.CPUs},
		{"--memory", s.MemoryBytes != 0, can.Memory},
		{"--disk", s.DiskBytes != 0, can.Disk},
		{"--pids", s.PIDs != 0, can.PIDs},
		{"--gpu", s.GPU != "", can.GPU},
		{"--workdir", s.Workdir != "", can.Workdir},
		{"--env", len(s.Env) > 0, can.Env},
	} {
		if field.wanted && !field.holds {
			return plugin.Refusedf(field.option, "driver %s cannot enforce %s here", driver.Name, field.option).
				WithHint("leave %s out, or take another driver; `sandboxctl driver info %s` shows what this one can do and `sandboxctl doctor` what is missing", field.option, driver.Name)
		}
	}
	return nil
}

func refuseNetwork(s *Spec, driver plugin.Info) error {
	can := driver.Capabilities.Network
	refuse := func(option, format string, args ...any) error {
		return plugin.Refusedf(option, format, args...).
			WithHint("`sandboxctl driver info %s` shows which network policies it enforces", driver.Name)
	}
	hosts, cidrs := s.Network.Hosts, s.Network.CIDRs
	switch {
	case s.Network.Mode == plugin.NetworkNone && !can.None:
		return refuse("--network none", "driver %s cannot keep a sandbox off the network; say --network open if that is acceptable", driver.Name)
	case s.Network.Mode == plugin.NetworkOpen && !can.Open:
		return refuse("--network open", "driver %s cannot give a sandbox an open network", driver.Name)
	case s.Network.Mode == plugin.NetworkOpen && len(cidrs) > 0 && !can.OpenCIDRs:
		return refuse("--allow-cidr", "driver %s cannot add address ranges to an open network; leave one of the two out", driver.Name)
	case len(hosts) > 0 && can.AllowHosts == "":
		return refuse("--allow-host", "driver %s cannot restrict a sandbox to host names", driver.Name)
	case len(cidrs) > 0 && !can.AllowCIDRs:
		return refuse("--allow-cidr", "driver %s cannot restrict a sandbox to address ranges", driver.Name)
	case len(hosts) > 0 && len(cidrs) > 0 && !can.AllowBoth:
		return refuse("--allow-cidr", "driver %s enforces --allow-host or --allow-cidr, not both in one sandbox", driver.Name)
	}
	for _, cidr := range cidrs {
		if strings.Contains(cidr, ":") && !can.AllowCIDRsIPv6 {
			return refuse("--allow-cidr", "driver %s cannot restrict a sandbox to the IPv6 range %s", driver.Name, cidr)
		}
	}
	return nil
}

func refuseLease(s *Spec, driver plugin.Info) error {
	can := driver.Capabilities.Lease
	switch {
	case s.TTL == 0 && !can.Unlimited:
		return plugin.Refusedf("--ttl 0", "driver %s cannot keep a sandbox without an end", driver.Name).
			WithHint("name a --ttl%s", upTo(can.MaxTTL))
	case s.TTL != 0 && s.TTL < can.MinTTL:
		return plugin.Refusedf("--ttl", "driver %s keeps sandboxes for at least %s, not %s", driver.Name, can.MinTTL, s.TTL).
			WithHint("take a longer --ttl and remove the sandbox when you are done")
	case can.MaxTTL != 0 && s.TTL > can.MaxTTL:
		return plugin.Refusedf("--ttl", "driver %s keeps sandboxes for at most %s, not %s", driver.Name, can.MaxTTL, s.TTL).
			WithHint("name a --ttl%s", upTo(can.MaxTTL))
	case s.IdleTimeout != 0 && !can.IdleTimeout:
		return plugin.Refusedf("--idle-timeout", "driver %s cannot tell when a sandbox is idle", driver.Name).
			WithHint("leave --idle-timeout out and choose a shorter --ttl")
	}
	return nil
}

func upTo(limit time.Duration) string {
	if limit == 0 {
		return ""
	}
	return " of at most " + limit.String()
}

func refuseOptions(s *Spec, driver plugin.Info) error {
	known := map[string]bool{}
	var names []string
	for _, option := range driver.Options {
		known[option.Name] = true
		names = append(names, option.Name)
	}
	for name := range s.Options {
		if !known[name] {
			return plugin.Refusedf("--opt "+name, "driver %s has no option %q", driver.Name, name).
				WithHint("it has: %s", orNothing(strings.Join(names, ", ")))
		}
	}
	return nil
}

func orNothing(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// RefuseExec returns an error of kind refused when a driver cannot run a command as
// it was asked to.
func RefuseExec(request *plugin.ExecRequest, driver plugin.Info) error {
	can := driver.Capabilities.Exec
	for _, feature := range []struct {
		option        string
		wanted, holds bool
	}{
		{"--interactive", request.Stdin, can.Stdin},
		{"--tty", request.TTY, can.TTY},
		{"--user", request.User != "", can.User},
	} {
		if feature.wanted && !feature.holds {
			return plugin.Refusedf(feature.option, "driver %s does not support %s", driver.Name, feature.option).
				WithHint("leave it out; `sandboxctl driver info %s` shows what this driver can do", driver.Name)
		}
	}
	return nil
}
