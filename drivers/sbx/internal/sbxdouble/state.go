package sbxdouble

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/gofrs/flock"
)

// sandbox is one record of the state directory.
type sandbox struct {
	Name       string   `json:"name"`
	Agent      string   `json:"agent"`
	Image      string   `json:"image"`
	Workspaces []string `json:"workspaces"`
	Env        []string `json:"env"`
	CPUs       int      `json:"cpus"`
	Memory     string   `json:"memory"`
	Unmounted  bool     `json:"unmounted"` // came up without its workspace
}

// rule is one network rule.
type rule struct {
	ID       string `json:"id"`
	Sandbox  string `json:"sandbox"`  // empty is global
	Decision string `json:"decision"` // allow or deny
	Resource string `json:"resource"`
	Origin   string `json:"origin"` // local, org or kit
}

type policyState struct {
	Preset string `json:"preset"`
	Rules  []rule `json:"rules"`
}

// Call is one invocation as the double saw it.
type Call struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	TTY  bool     `json:"tty"` // a controlling terminal could be opened
}

// store is the state directory. Every method that changes it holds the lock.
type store struct{ dir string }

func (s store) sandboxDir(name string) string { return filepath.Join(s.dir, "sandboxes", name) }

func (s store) locked(do func() error) error {
	if err := os.MkdirAll(filepath.Join(s.dir, "sandboxes"), 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(s.dir, "lock"))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer lock.Unlock()
	return do()
}

func (s store) load(name string) (*sandbox, error) {
	text, err := os.ReadFile(filepath.Join(s.sandboxDir(name), "sandbox.json"))
	if err != nil {
		return nil, err
	}
	var box sandbox
	return &box, json.Unmarshal(text, &box)
}

func (s store) exists(name string) bool {
	_, err := s.load(name)
	return err == nil
}

func (s store) save(box *sandbox) error {
	return writeJSON(filepath.Join(s.sandboxDir(box.Name), "sandbox.json"), box)
}

func (s store) list() ([]*sandbox, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "sandboxes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	boxes := []*sandbox{}
	for _, entry := range entries {
		if box, err := s.load(entry.Name()); err == nil {
			boxes = append(boxes, box)
		}
	}
	sort.Slice(boxes, func(i, j int) bool { return boxes[i].Name < boxes[j].Name })
	return boxes, nil
}

// leaked names are taken for create and unknown to everything else.
func (s store) leak(name string) error {
	return writeJSON(filepath.Join(s.dir, "leaked-"+name), true)
}

func (s store) isLeaked(name string) bool {
	_, err := os.Stat(filepath.Join(s.dir, "leaked-"+name))
	return err == nil
}

func (s store) policy(c *Config) (*policyState, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "policy.json"))
	if errors.Is(err, fs.ErrNotExist) {
		p := &policyState{}
		if c.Preset != "" {
			p.init(c.Preset)
		}
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	var p policyState
	return &p, json.Unmarshal(text, &p)
}

func (s store) savePolicy(p *policyState) error {
	return writeJSON(filepath.Join(s.dir, "policy.json"), p)
}

// next takes the next entry of a list of faults; it remembers how many were taken.
func (s store) next(kind string, faults []string) string {
	path := filepath.Join(s.dir, "taken-"+kind)
	fault := ""
	_ = s.locked(func() error {
		taken := 0
		if text, err := os.ReadFile(path); err == nil {
			_ = json.Unmarshal(text, &taken)
		}
		if taken < len(faults) {
			fault = faults[taken]
		}
		return writeJSON(path, taken+1)
	})
	return fault
}

func (s store) record(call Call) error {
	return s.locked(func() error {
		f, err := os.OpenFile(filepath.Join(s.dir, "calls.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		return json.NewEncoder(f).Encode(call)
	})
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%d.%d", path, os.Getpid(), time.Now().UnixNano())
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
