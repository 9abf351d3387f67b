package sbx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// entry is a row of `sbx ls --json`. More keys come with newer versions.
type entry struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// list asks for all sandboxes of this machine, by name. An answer that cannot be
// read is an error and never an empty list.
func (p *program) list(ctx context.Context) (map[string]entry, error) {
	out, err := p.must(ctx, "list sandboxes", "ls", "--json")
	if err != nil {
		return nil, err
	}
	return parseList(out.stdout)
}

func parseList(stdout []byte) (map[string]entry, error) {
	var answer struct {
		Sandboxes json.RawMessage `json:"sandboxes"`
	}
	var rows []entry
	err := firstJSON(stdout, &answer)
	if err == nil && answer.Sandboxes == nil {
		err = errors.New("it has no list of sandboxes")
	}
	if err == nil {
		err = json.Unmarshal(answer.Sandboxes, &rows)
	}
	if err != nil {
		return nil, plugin.Errorf(plugin.KindUnavailable, "cannot read the answer of `sbx ls --json`: %w", err)
	}
	entries := make(map[string]entry, len(rows))
	for _, row := range rows {
		entries[row.Name] = row
	}
	return entries, nil
}

func (e entry) state() plugin.State {
	switch strings.ToLower(e.Status) {
	case "running":
		return plugin.StateRunning
	case "creating", "starting":
		return plugin.StateCreating
	case "failed", "error":
		return plugin.StateFailed
	}
	return plugin.StateStopped
}

// List implements plugin.Driver: what sbx has and we have a record of.
func (d *Driver) List(ctx context.Context, _ plugin.ListRequest) (*plugin.SandboxList, error) {
	p, err := d.program(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := d.recordIDs()
	if err != nil {
		return nil, err
	}
	list := &plugin.SandboxList{}
	for _, id := range ids {
		rec, err := d.loadRecord(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			list.Warnings = append(list.Warnings, fmt.Sprintf("the record of sandbox %s cannot be read: %s", id, err))
			continue
		}
		if row, ok := entries[rec.Sandbox]; ok {
			list.Sandboxes = append(list.Sandboxes, rec.sandbox(row))
		}
	}
	return list, nil
}

// Inspect implements plugin.Inspector.
func (d *Driver) Inspect(ctx context.Context, ref plugin.Ref) (*plugin.Sandbox, error) {
	rec, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	p, err := d.program(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	row, ok := entries[rec.Sandbox]
	if !ok {
		return nil, gone(ref)
	}
	return rec.sandbox(row), nil
}

func gone(ref plugin.Ref) *plugin.Error {
	return plugin.NotFoundf("sandbox %s does not exist in sbx any more", ref.ID)
}

// find returns the record of a sandbox.
func (d *Driver) find(ref plugin.Ref) (*record, error) {
	rec, err := d.loadRecord(ref.ID)
	switch {
	case err == nil:
		return rec, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, gone(ref)
	case errors.Is(err, os.ErrPermission):
		return nil, plugin.Errorf(plugin.KindUnavailable, "cannot read the record of sandbox %s: %w", ref.ID, err)
	}
	return nil, plugin.Errorf(plugin.KindInternal, "cannot read the record of sandbox %s: %w", ref.ID, err)
}
