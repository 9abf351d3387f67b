package sbxdouble

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ConfigFile is the name of the configuration beside the executable.
const ConfigFile = "sbxdouble.json"

// The CLI generations the double can be.
const (
	Gen035 = "0.35"
	Gen039 = "0.39"
	Gen042 = "0.42"
	Gen045 = "0.45"
)

// Generations lists them from the oldest to the newest.
func Generations() []string { return []string{Gen035, Gen039, Gen042, Gen045} }

// Network presets of `sbx policy init`.
const (
	PresetAllowAll = "allow-all"
	PresetBalanced = "balanced"
	PresetDenyAll  = "deny-all"
)

// Faults that one `sbx create` can be told to have, see Config.CreateFaults.
const (
	CreateRateLimited = "429"          // Hub refused the token refresh; nothing is made
	CreateNetworkLeft = "network"      // a crashed sandbox left its network behind; the name leaks
	CreateNetworkBare = "network-bare" // the same, in fewer words
	CreateLeaksName   = "leak"         // fails half way; the name stays taken although ls does not show it
	CreateMountDenied = "mount"        // the mount policy refuses the workspace
	CreateMountSilent = "mount-silent" // the sandbox comes up without its workspace and says nothing
	CreateBadImage    = "image"        // the image cannot be pulled
	CreateNoKVM       = "kvm"          // the host cannot run microVMs
	CreateDirty       = "dirty"        // exits 1 although the sandbox was made
	CreateDirtyLimit  = "dirty-429"    // the same, and says that it was rate-limited
)

// Config is what a test decides about the double. Durations are nanoseconds in
// JSON, as encoding/json writes them.
type Config struct {
	StateDir   string `json:"state_dir"`
	Generation string `json:"generation"`
	Version    string `json:"version,omitempty"` // what `sbx version` prints; default by generation
	Seed       int64  `json:"seed"`              // decides what the public record leaves open

	Preset        string        `json:"preset,omitempty"` // network preset set before the first call; empty is "not initialised"
	LoggedOut     bool          `json:"logged_out,omitempty"`
	PromptOffTTY  bool          `json:"prompt_off_tty,omitempty"` // sign-in starts a device-code prompt without a terminal too
	IdleStop      time.Duration `json:"idle_stop,omitempty"`      // auto-stop after the last session; default 30s
	KeepUnused    bool          `json:"keep_unused,omitempty"`    // a sandbox that never had a session stays up
	DiskBytes     int64         `json:"disk_bytes,omitempty"`     // size of the guest's /tmp; 0 is unlimited
	OrgGovernance bool          `json:"org_governance,omitempty"` // local allow rules are inactive
	KitAllows     []string      `json:"kit_allows,omitempty"`     // what the agent kit allows, scoped; overrides the seed
	AcceptDenied  bool          `json:"accept_denied,omitempty"`  // a denied TCP connection is accepted and closed at once
	DropRules     bool          `json:"drop_rules,omitempty"`     // rules are accepted and not kept

	Hang         []string `json:"hang,omitempty"`          // commands that never return; "*" is all
	DaemonHeader string   `json:"daemon_header,omitempty"` // stream of the daemon's start header: "stdout", "stderr"
	Banner       string   `json:"banner,omitempty"`        // stream of the update banner, after the payload
	WarnLine     string   `json:"warn_line,omitempty"`     // stream of a WARN line, before the payload
	CreateFaults []string `json:"create_faults,omitempty"` // one per create, in order; "" is none
	ExecFaults   []string `json:"exec_faults,omitempty"`   // one per exec, in order; see exec.go
	RmFails      bool     `json:"rm_fails,omitempty"`      // rm --force exits 1 and removes nothing
}

// Unknowns are the behaviours nobody has published; New draws them from a seed.
type Unknowns struct {
	RmMissingExit      int    // exit code of `rm --force` for a missing sandbox
	TakenText          string // what create says when the name exists
	NoExecutableExit   int    // exit code of exec when the program does not exist
	CheckDeniedExit    int    // exit code of `policy check` when the answer is no
	RulesSurviveStop   bool   // scoped rules are still there after stop and start
	WildcardScoped     bool   // a scoped allow of ** has an effect
	KitAllows          bool   // the shell agent brings allow rules of its own
	StdinEOFReaches    bool   // closing stdin mid-stream reaches the guest
	NoiseOnExecStdout  bool   // header, WARN and banner of exec go to stdout
	NoInputFlag        bool   // 0.45 has --no-input
	PolicyLsNeedsInit  bool   // `policy ls` fails before `policy init`
	BackgroundHoldsEnd bool   // exec does not end while a background process holds its output
	NullWhenEmpty      bool   // `ls --json` prints null for an empty list
	ScopesByID         bool   // rules name their sandbox by an id that nothing else shows
}

// UnknownsFor draws the unknowns for a seed. Seed 0 answers every question with
// no and seed -1 with yes; any other seed mixes them by its bits.
func UnknownsFor(seed int64) Unknowns {
	bit := func(n int) bool { return seed>>n&1 == 1 }
	u := Unknowns{
		TakenText:          `ERROR: failed to create sandbox: request failed: 409 Conflict: sandbox %q already exists`,
		NoExecutableExit:   127,
		RulesSurviveStop:   bit(2),
		WildcardScoped:     bit(3),
		KitAllows:          bit(4),
		StdinEOFReaches:    bit(5),
		NoiseOnExecStdout:  bit(6),
		NoInputFlag:        bit(7),
		PolicyLsNeedsInit:  bit(8),
		BackgroundHoldsEnd: bit(9),
		NullWhenEmpty:      bit(10),
		ScopesByID:         bit(13),
	}
	if bit(0) {
		u.RmMissingExit = 1
	}
	if bit(1) {
		u.TakenText = `ERROR: container create: Error response from daemon: already exists`
	}
	if bit(11) {
		u.CheckDeniedExit = 1
	}
	if bit(12) {
		u.NoExecutableExit = 1
	}
	return u
}

// UnknownBits is how many bits of a seed matter.
const UnknownBits = 14

func (c *Config) unknowns() Unknowns { return UnknownsFor(c.Seed) }

// atLeast says whether this generation is gen or newer.
func (c *Config) atLeast(gen string) bool {
	return slices.Index(Generations(), c.Generation) >= slices.Index(Generations(), gen)
}

func (c *Config) hangs(command string) bool {
	return slices.Contains(c.Hang, command) || slices.Contains(c.Hang, "*")
}

// Write stores the configuration beside the program in dir; a running test can
// call it again to change the double's behaviour from the next command on.
func (c Config) Write(dir string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, ConfigFile+".new")
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, ConfigFile))
}

func loadConfig() (*Config, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(self), ConfigFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !slices.Contains(Generations(), c.Generation) {
		return nil, fmt.Errorf("%s: generation %q is not one of %v", path, c.Generation, Generations())
	}
	if c.StateDir == "" {
		return nil, fmt.Errorf("%s: state_dir is missing", path)
	}
	if c.IdleStop == 0 {
		c.IdleStop = 30 * time.Second
	}
	return &c, nil
}
