package sbxdouble

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

var (
	agents    = []string{"claude", "codex", "copilot", "cursor", "docker-agent", "cagent", "droid", "gemini", "kiro", "opencode", "shell"}
	validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]+$`)
	sizeForm  = regexp.MustCompile(`^([0-9]+)([bkmgBKMG]?)$`)
)

var errRateLimited = fail("request failed: 429 Too Many Requests: refresh docker hub token: rate limited")

const shellImage = "docker/sandbox-templates:shell-docker"

type createOptions struct {
	name, image, memory string
	cpus                int
	quiet               bool
	denyNetwork, env    []string
}

func (a *app) createCommand() *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{Use: "create [flags] AGENT PATH [PATH...]"}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name of the sandbox")
	f.StringVarP(&o.image, "template", "t", shellImage, "image")
	f.StringVarP(&o.memory, "memory", "m", "", "memory limit")
	f.IntVar(&o.cpus, "cpus", 0, "number of CPUs")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress output")
	f.Bool("clone", false, "clone the workspace")
	f.StringArray("kit", nil, "kit")
	f.Bool("branch", false, "removed")
	_ = f.MarkHidden("branch")
	if a.config.atLeast(Gen039) {
		f.StringArrayP("publish", "p", nil, "port")
		f.StringArrayVar(&o.denyNetwork, "deny-network", nil, "host the sandbox may not reach")
		f.StringArray("static-mcp", nil, "MCP server")
		f.String("profile", "", "profile")
		f.StringArrayVarP(&o.env, "env", "e", nil, "environment variable")
		f.StringArray("env-file", nil, "file of environment variables")
		f.Bool("no-share-skills", false, "hidden")
		_ = f.MarkHidden("no-share-skills")
	}
	if a.config.atLeast(Gen042) {
		f.StringArray("kit-arg", nil, "kit argument")
		f.StringArray("allow-network", nil, "cloud only")
	}
	if a.config.atLeast(Gen045) {
		f.String("pull", "", "pull policy")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("branch") {
			return fail("--branch is no longer supported; use --clone instead")
		}
		if cmd.Flags().Changed("allow-network") {
			return fail("--allow-network requires --cloud")
		}
		return a.create(o, args)
	}
	return cmd
}

func (a *app) create(o createOptions, args []string) error {
	paths, err := a.checkCreate(&o, args)
	if err != nil {
		return err
	}
	fault := a.store.next("create", a.config.CreateFaults)
	if err := a.failCreate(fault, o, paths); err != nil {
		return err
	}
	box := &sandbox{
		Name: o.name, Agent: args[0], Image: o.image, Workspaces: paths, CPUs: o.cpus, Memory: o.memory,
		Env: expandEnv(o.env), Unmounted: fault == CreateMountSilent,
	}
	if err := a.register(box, o.denyNetwork); err != nil {
		return err
	}
	if _, err := a.boot(box); err != nil {
		_ = a.remove(box.Name)
		return fail("failed to create sandbox: request failed: 500 Internal Server Error: %v", err)
	}
	switch fault {
	case CreateDirty:
		return fail("request failed: Client.Timeout exceeded while awaiting headers")
	case CreateDirtyLimit:
		return errRateLimited
	}
	if !o.quiet {
		fmt.Printf("✓ Created sandbox '%s'\n", o.name)
		if len(paths) > 0 {
			fmt.Printf("  Workspace: %s (direct mount)\n", paths[0])
		}
		fmt.Printf("  Agent: %s\n\nTo connect to this sandbox, run:\n  sbx run --name %s\n", args[0], o.name)
	}
	return nil
}

// checkCreate refuses what sbx refuses before it makes anything, and resolves the workspaces.
func (a *app) checkCreate(o *createOptions, args []string) ([]string, error) {
	if len(args) == 0 || len(args) == 1 && !a.config.atLeast(Gen042) {
		return nil, fail("requires at least %d arg(s), only received %d", map[bool]int{true: 1, false: 2}[a.config.atLeast(Gen042)], len(args))
	}
	if !slices.Contains(agents, args[0]) {
		return nil, fail("unknown agent or kit %q", args[0])
	}
	var paths []string
	for i, path := range args[1:] {
		path, readOnly := strings.CutSuffix(path, ":ro")
		if readOnly && i == 0 {
			return nil, fail("the primary workspace must be writable")
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(abs); err != nil || !info.IsDir() {
			return nil, fail("workspace %s: no such directory", abs)
		}
		paths = append(paths, abs)
	}
	if o.name == "" {
		o.name = args[0] + "-" + filepath.Base(append(paths, "workspace")[0])
	}
	if !validName.MatchString(o.name) || o.name == "default" {
		return nil, fail("invalid sandbox name %q: use letters, digits, hyphens and periods", o.name)
	}
	if err := a.checkMemory(o.memory); err != nil {
		return nil, err
	}
	policy, err := a.store.policy(a.config)
	if err != nil {
		return nil, err
	}
	if policy.Preset == "" {
		return nil, fail("global network policy has not been initialized; run `sbx policy init <allow-all|balanced|deny-all>`")
	}
	return paths, nil
}

// memoryBytes reads sbx's sizes; ok is false for what is none.
func memoryBytes(memory string) (bytes int64, ok bool) {
	m := sizeForm.FindStringSubmatch(memory)
	if m == nil {
		return 0, false
	}
	bytes, err := strconv.ParseInt(m[1], 10, 64)
	return bytes << map[string]uint{"": 0, "b": 0, "k": 10, "m": 20, "g": 30}[strings.ToLower(m[2])], err == nil
}

func (a *app) checkMemory(memory string) error {
	if memory == "" {
		return nil
	}
	bytes, ok := memoryBytes(memory)
	if !ok {
		return fail("request failed: 400 Bad Request: invalid memory %q: bad size", memory)
	}
	minimum, text := int64(1<<30), "1 GiB"
	if a.config.atLeast(Gen045) {
		minimum, text = 512<<20, "512 MiB"
	}
	if bytes < minimum {
		return fail("request failed: 400 Bad Request: invalid memory %q: memory %s is below the minimum of %s", memory, memory, text)
	}
	return nil
}

func (a *app) failCreate(fault string, o createOptions, paths []string) error {
	switch fault {
	case CreateRateLimited:
		return errRateLimited
	case CreateNetworkLeft, CreateNetworkBare, CreateLeaksName:
		if err := a.store.locked(func() error { return a.store.leak(o.name) }); err != nil {
			return err
		}
		if fault == CreateNetworkLeft {
			return fail("failed to create sandbox: request failed: 500 Internal Server Error: failed to create network: network %s already exists", o.name)
		}
		if fault == CreateNetworkBare {
			return fail("failed to create sandbox: request failed: 500 Internal Server Error: failed to create network")
		}
		return fail("request failed: 500 Internal Server Error: failed to run sandbox container")
	case CreateMountDenied:
		return fail("failed to create sandbox: request failed: 403 Forbidden: mount policy denied: %s: not allowed", strings.Join(paths, ","))
	case CreateBadImage:
		return fail("create sandbox: request failed: 500 Internal Server Error: pull failed for image %q", o.image)
	case CreateNoKVM:
		return fail("failed to create sandbox: KVM error: Permission denied (os error 13)")
	}
	// Names under .invalid never resolve.
	registry, _, _ := strings.Cut(o.image, "/")
	if strings.Contains(o.image, "no-such-image") || strings.HasSuffix(registry, ".invalid") {
		return fail("create sandbox: request failed: 500 Internal Server Error: pull failed for image %q", o.image)
	}
	return nil
}

// register takes the name and stores the record with its first rules.
func (a *app) register(box *sandbox, denies []string) error {
	return a.store.locked(func() error {
		if a.store.exists(box.Name) || a.store.isLeaked(box.Name) {
			text := a.config.unknowns().TakenText
			if strings.Contains(text, "%q") {
				text = fmt.Sprintf(text, box.Name)
			}
			return &exitError{code: 1, text: text}
		}
		policy, err := a.store.policy(a.config)
		if err != nil {
			return err
		}
		kit := a.config.KitAllows
		if kit == nil && a.config.unknowns().KitAllows {
			kit = kitHosts
		}
		for _, host := range kit {
			policy.add(box.Name, "allow", host, "kit")
		}
		if !a.config.DropRules {
			for _, host := range denies {
				policy.add(box.Name, "deny", host, "local")
			}
		}
		if err := a.store.savePolicy(policy); err != nil {
			return err
		}
		return a.store.save(box)
	})
}

// expandEnv gives a bare NAME the value it has on the host, as docker does.
func expandEnv(env []string) []string {
	var full []string
	for _, entry := range env {
		if !strings.Contains(entry, "=") {
			value, ok := os.LookupEnv(entry)
			if !ok {
				continue
			}
			entry += "=" + value
		}
		full = append(full, entry)
	}
	return full
}
