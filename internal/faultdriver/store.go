package faultdriver

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	driverpb "github.com/sandboxctl/sandboxctl/plugin/driverpb/v1"
)

// store keeps sandboxes as files, so that the next process finds them.
type store struct{ dir string }

// kept is a sandbox with its fault.
type kept struct {
	sandbox *driverpb.Sandbox
	fault   Fault
}

type storedSandbox struct {
	Fault   Fault           `json:"fault"`
	Sandbox json.RawMessage `json:"sandbox"`
}

func (s store) file(id string) string { return filepath.Join(s.dir, id+".json") }

// root is the directory that a sandbox's commands and files are in.
func (s store) root(id string) string { return filepath.Join(s.dir, id) }

func (s store) put(k kept) error {
	sandbox, err := protojson.Marshal(k.sandbox)
	if err != nil {
		return err
	}
	content, err := json.Marshal(storedSandbox{Fault: k.fault, Sandbox: sandbox})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.root(k.sandbox.GetId()), 0o700); err != nil {
		return err
	}
	temporary := s.file(k.sandbox.GetId()) + ".new"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, s.file(k.sandbox.GetId()))
}

// get finds a sandbox by its id; the handle is the same.
func (s store) get(ref *driverpb.SandboxRef) (kept, error) {
	id := ref.GetId()
	if strings.ContainsAny(id, `/\`) {
		return kept{}, notFound(id)
	}
	k, err := s.read(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}, notFound(id)
	}
	return k, err
}

func (s store) read(file string) (kept, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return kept{}, err
	}
	var stored storedSandbox
	if err := json.Unmarshal(content, &stored); err != nil {
		return kept{}, err
	}
	k := kept{sandbox: &driverpb.Sandbox{}, fault: stored.Fault}
	return k, protojson.Unmarshal(stored.Sandbox, k.sandbox)
}

func (s store) all() ([]kept, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := []kept{}
	for _, file := range files {
		k, err := s.read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // destroyed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

func (s store) remove(id string) error {
	return errors.Join(os.Remove(s.file(id)), os.RemoveAll(s.root(id)))
}
