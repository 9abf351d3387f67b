package spec

import (
	"errors"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// able is a driver that can do everything within limits.
func able() plugin.Info {
	return plugin.Info{
		Name: "able", DefaultImage: "default", Options: []plugin.Option{{Name: "known"}},
		Capabilities: plugin.Capabilities{
			Spec:    plugin.SpecSupport{Image: true, CPUs: true, Memory: true, Disk: true, PIDs: true, GPU: true, Workdir: true, Env: true},
			Network: plugin.NetworkSupport{None: true, Open: true, AllowHosts: plugin.MatchAddress, AllowCIDRs: true, AllowCIDRsIPv6: true, AllowBoth: true},
			Lease:   plugin.LeaseSupport{Unlimited: true, IdleTimeout: true, MinTTL: time.Minute, MaxTTL: time.Hour},
			Exec:    plugin.ExecSupport{Stdin: true, TTY: true, User: true},
		},
	}
}

func full() *Spec {
	return &Spec{
		Image: "i", Env: map[string]string{"A": "b"}, Workdir: "/w", CPUs: 1, MemoryBytes: 1, DiskBytes: 1, PIDs: 1, GPU: "g", TTL: time.Hour, IdleTimeout: time.Minute,
		Network: plugin.NetworkPolicy{Mode: plugin.NetworkAllow, Hosts: []string{"a.b"}, CIDRs: []string{"2001:db8::/32"}},
		Options: map[string]string{"known": "x"},
	}
}

// Every option is refused by its name when the driver lacks what it needs, and by no
// driver that has it.
func TestRefuse(t *testing.T) {
	if err := Refuse(full(), able()); err != nil {
		t.Fatalf("an able driver is refused: %v", err)
	}
	for option, lacks := range map[string]func(*plugin.Info, *Spec){
		"--image":        func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.Image = false },
		"--cpus":         func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.CPUs = false },
		"--memory":       func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.Memory = false },
		"--disk":         func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.Disk = false },
		"--pids":         func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.PIDs = false },
		"--gpu":          func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.GPU = false },
		"--workdir":      func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.Workdir = false },
		"--env":          func(i *plugin.Info, _ *Spec) { i.Capabilities.Spec.Env = false },
		"--allow-host":   func(i *plugin.Info, _ *Spec) { i.Capabilities.Network.AllowHosts = "" },
		"--allow-cidr":   func(i *plugin.Info, _ *Spec) { i.Capabilities.Network.AllowCIDRs = false },
		"--idle-timeout": func(i *plugin.Info, _ *Spec) { i.Capabilities.Lease.IdleTimeout = false },
		"--network none": func(i *plugin.Info, s *Spec) {
			i.Capabilities.Network.None = false
			s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkNone}
		},
		"--network open": func(i *plugin.Info, s *Spec) {
			i.Capabilities.Network.Open = false
			s.Network = plugin.NetworkPolicy{Mode: plugin.NetworkOpen}
		},
		"--ttl 0":       func(i *plugin.Info, s *Spec) { i.Capabilities.Lease.Unlimited = false; s.TTL = 0 },
		"--opt unknown": func(_ *plugin.Info, s *Spec) { s.Options["unknown"] = "x" },
	} {
		info, wanted := able(), full()
		lacks(&info, wanted)
		refusedAs(t, Refuse(wanted, info), option)
	}
	for name, test := range map[string]struct {
		edit   func(*plugin.Info, *Spec)
		option string
	}{
		"both lists": {func(i *plugin.Info, _ *Spec) { i.Capabilities.Network.AllowBoth = false }, "--allow-cidr"},
		"IPv6":       {func(i *plugin.Info, _ *Spec) { i.Capabilities.Network.AllowCIDRsIPv6 = false }, "--allow-cidr"},
		"too short":  {func(_ *plugin.Info, s *Spec) { s.TTL = time.Second }, "--ttl"},
		"too long":   {func(_ *plugin.Info, s *Spec) { s.TTL = 2 * time.Hour }, "--ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			info, wanted := able(), full()
			test.edit(&info, wanted)
			refusedAs(t, Refuse(wanted, info), test.option)
		})
	}
	info, wanted := able(), full()
	info.Capabilities.Spec.Image, wanted.Image = false, info.DefaultImage
	if err := Refuse(wanted, info); err != nil {
		t.Errorf("the driver's own image is refused: %v", err)
	}
}

func TestRefuseExec(t *testing.T) {
	request := &plugin.ExecRequest{Stdin: true, TTY: true, User: "u"}
	if err := RefuseExec(request, able()); err != nil {
		t.Fatal(err)
	}
	for option, lacks := range map[string]func(*plugin.ExecSupport){
		"--interactive": func(e *plugin.ExecSupport) { e.Stdin = false },
		"--tty":         func(e *plugin.ExecSupport) { e.TTY = false },
		"--user":        func(e *plugin.ExecSupport) { e.User = false },
	} {
		info := able()
		lacks(&info.Capabilities.Exec)
		refusedAs(t, RefuseExec(request, info), option)
	}
}

func refusedAs(t *testing.T, err error, option string) {
	t.Helper()
	var typed *plugin.Error
	if !errors.As(err, &typed) || typed.Kind != plugin.KindRefused || typed.Option != option || typed.Hint == "" {
		t.Errorf("%s: got %+v", option, err)
	}
}
