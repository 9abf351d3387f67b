package sbx

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// features is what an sbx can do, as its own help says. The version is for people:
// flags came and went between versions, and are looked for.
type features struct {
	Version     string `json:"version"`
	DenyNetwork bool   `json:"deny_network"` // create --deny-network
	NoInput     bool   `json:"no_input"`     // --no-input
}

// cachedFeatures are the features of one file; another file is looked at anew.
type cachedFeatures struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Features features  `json:"features"`
}

var (
	// Several unrelated programs are called sbx. Docker's begins its version so.
	versionLine = regexp.MustCompile(`(?im)^(?:client version|sbx version):\s*v?(\d+\.\d+\.\d+\S*)`)
	denyFlag    = regexp.MustCompile(`(?m)^\s+--deny-network\b`)
	noInputFlag = regexp.MustCompile(`(?m)^\s+--no-input\b`)
)

// program finds sbx and what it can do, once.
func (d *Driver) program(ctx context.Context) (*program, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sbx != nil {
		return d.sbx, nil
	}
	path, err := d.findProgram()
	if err != nil {
		return nil, err
	}
	p := &program{path: path, env: sbxEnvironment(d.config.Environment), limit: d.settings.CallTimeout}
	if err := d.probe(ctx, p); err != nil {
		return nil, err
	}
	d.sbx = p
	return p, nil
}

func (d *Driver) findProgram() (string, error) {
	name := d.settings.Binary
	if name == "" {
		name = "sbx"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		// Set-up that is missing, as credentials are, and not there on a second try.
		return "", plugin.Errorf(plugin.KindAuth, "Docker's sbx program was not found: %w", err).WithHint("%s", installHint())
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	return path, nil
}

func installHint() string {
	switch runtime.GOOS {
	case "darwin":
		return "Install it with `brew install docker/tap/sbx`, then run `sbx login`; or set drivers.sbx.binary."
	case "windows":
		return "Install it with `winget install Docker.sbx`, then run `sbx login`; or set drivers.sbx.binary."
	}
	return "Install Docker Sandboxes (docs.docker.com/ai/sandboxes), then run `sbx login`; or set drivers.sbx.binary."
}

// probe fills in the features. Asking takes two processes, so the answer is kept
// for as long as the file stays the same.
func (d *Driver) probe(ctx context.Context, p *program) error {
	info, err := os.Stat(p.path)
	if err != nil {
		return plugin.Errorf(plugin.KindUnavailable, "cannot look at sbx: %w", err)
	}
	cache := filepath.Join(d.config.StateDir, "features.json")
	now := cachedFeatures{Path: p.path, Size: info.Size(), Modified: info.ModTime().UTC()}
	if text, err := os.ReadFile(cache); err == nil {
		var kept cachedFeatures
		if json.Unmarshal(text, &kept) == nil && kept.Path == now.Path && kept.Size == now.Size && kept.Modified.Equal(now.Modified) {
			p.features = kept.Features
			return nil
		}
	}
	if now.Features, err = askFeatures(ctx, p); err != nil {
		return err
	}
	p.features = now.Features
	return writeJSON(cache, now)
}

func askFeatures(ctx context.Context, p *program) (features, error) {
	version, err := p.run(ctx, "version")
	if err != nil {
		return features{}, err
	}
	match := versionLine.FindSubmatch(version.stdout)
	if match == nil {
		return features{}, plugin.Errorf(plugin.KindUnavailable, "%s is not Docker's sbx: it does not answer `sbx version` as that does", p.path).
			WithHint("Several programs are called sbx. %s", installHint())
	}
	// A help that failed must not be kept as that of an sbx that can do nothing.
	help, err := p.must(ctx, "ask sbx what it can do", "create", "--help")
	if err != nil {
		return features{}, err
	}
	return features{Version: string(match[1]), DenyNetwork: denyFlag.Match(help.stdout), NoInput: noInputFlag.Match(help.stdout)}, nil
}
