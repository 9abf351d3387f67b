package plugin

import driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"

// apiMinor counts the additions to v1 that this SDK knows.
const apiMinor = 0

func infoToWire(info Info) *driverpb.GetInfoResponse {
	answer := &driverpb.GetInfoResponse{
		Name: info.Name, Version: info.Version, Description: info.Description,
		Capabilities:     capabilitiesToWire(info.Capabilities),
		ConfigSchemaJson: info.ConfigSchema, DefaultImage: info.DefaultImage, ApiMinor: apiMinor,
	}
	for _, variable := range info.Env {
		answer.Env = append(answer.Env, &driverpb.EnvVar{Name: variable.Name, Secret: variable.Secret, Description: variable.Description})
	}
	for _, option := range info.Options {
		answer.Options = append(answer.Options, &driverpb.Option{Name: option.Name, Description: option.Description})
	}
	return answer
}

func infoFromWire(answer *driverpb.GetInfoResponse) Info {
	info := Info{
		Name: answer.GetName(), Version: answer.GetVersion(), Description: answer.GetDescription(),
		Capabilities: capabilitiesFromWire(answer.GetCapabilities()),
		ConfigSchema: answer.GetConfigSchemaJson(), DefaultImage: answer.GetDefaultImage(),
	}
	for _, variable := range answer.GetEnv() {
		info.Env = append(info.Env, EnvVar{Name: variable.GetName(), Secret: variable.GetSecret(), Description: variable.GetDescription()})
	}
	for _, option := range answer.GetOptions() {
		info.Options = append(info.Options, Option{Name: option.GetName(), Description: option.GetDescription()})
	}
	return info
}

func capabilitiesToWire(c Capabilities) *driverpb.Capabilities {
	return &driverpb.Capabilities{
		Spec: &driverpb.SpecSupport{
			Image: c.Spec.Image, Cpus: c.Spec.CPUs, Memory: c.Spec.Memory, Disk: c.Spec.Disk, Pids: c.Spec.PIDs, Gpu: c.Spec.GPU,
			Workdir: c.Spec.Workdir, Env: c.Spec.Env, Labels: c.Spec.Labels,
		},
		Network: &driverpb.NetworkSupport{
			None: c.Network.None, Open: c.Network.Open, AllowHosts: hostMatches.toWire(c.Network.AllowHosts),
			AllowCidrs: c.Network.AllowCIDRs, AllowCidrsIpv6: c.Network.AllowCIDRsIPv6, AllowBoth: c.Network.AllowBoth,
			AccessLog: c.Network.AccessLog, OpenCidrs: c.Network.OpenCIDRs,
		},
		Lease: &driverpb.LeaseSupport{
			Ttl: c.Lease.TTL, Unlimited: c.Lease.Unlimited, IdleTimeout: c.Lease.IdleTimeout, Renew: c.Lease.Renew,
			MinTtl: durationToWire(c.Lease.MinTTL), MaxTtl: durationToWire(c.Lease.MaxTTL),
		},
		Exec: &driverpb.ExecSupport{
			Stdin: c.Exec.Stdin, Tty: c.Exec.TTY, Signals: c.Exec.Signals, User: c.Exec.User,
			SurvivesTimeout: c.Exec.SurvivesTimeout, Background: c.Exec.Background, MaxTimeout: durationToWire(c.Exec.MaxTimeout),
		},
		Files: &driverpb.FileSupport{
			Files: c.Files.Files, Archive: c.Files.Archive, SymlinkWrite: symlinkWrites.toWire(c.Files.SymlinkWrite),
		},
		Isolation: c.Isolation, ImageStore: c.ImageStore,
	}
}

func capabilitiesFromWire(c *driverpb.Capabilities) Capabilities {
	spec, network, lease, exec, files := c.GetSpec(), c.GetNetwork(), c.GetLease(), c.GetExec(), c.GetFiles()
	return Capabilities{
		Spec: SpecSupport{
			Image: spec.GetImage(), CPUs: spec.GetCpus(), Memory: spec.GetMemory(), Disk: spec.GetDisk(), PIDs: spec.GetPids(), GPU: spec.GetGpu(),
			Workdir: spec.GetWorkdir(), Env: spec.GetEnv(), Labels: spec.GetLabels(),
		},
		Network: NetworkSupport{
			None: network.GetNone(), Open: network.GetOpen(), AllowHosts: hostMatches.fromWire(network.GetAllowHosts()),
			AllowCIDRs: network.GetAllowCidrs(), AllowCIDRsIPv6: network.GetAllowCidrsIpv6(), AllowBoth: network.GetAllowBoth(),
			AccessLog: network.GetAccessLog(), OpenCIDRs: network.GetOpenCidrs(),
		},
		Lease: LeaseSupport{
			TTL: lease.GetTtl(), Unlimited: lease.GetUnlimited(), IdleTimeout: lease.GetIdleTimeout(), Renew: lease.GetRenew(),
			MinTTL: lease.GetMinTtl().AsDuration(), MaxTTL: lease.GetMaxTtl().AsDuration(),
		},
		Exec: ExecSupport{
			Stdin: exec.GetStdin(), TTY: exec.GetTty(), Signals: exec.GetSignals(), User: exec.GetUser(),
			SurvivesTimeout: exec.GetSurvivesTimeout(), Background: exec.GetBackground(), MaxTimeout: exec.GetMaxTimeout().AsDuration(),
		},
		Files: FileSupport{
			Files: files.GetFiles(), Archive: files.GetArchive(), SymlinkWrite: symlinkWrites.fromWire(files.GetSymlinkWrite()),
		},
		Isolation: c.GetIsolation(), ImageStore: c.GetImageStore(),
	}
}
