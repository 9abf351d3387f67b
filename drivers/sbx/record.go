package sbx

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// record is what the driver has to remember of a sandbox because sbx does not. It
// lies beside the workspace, where the guest cannot reach it.
type record struct {
	ID        string               `json:"id"`
	RequestID string               `json:"request_id"`
	Sandbox   string               `json:"sandbox"` // its name in sbx
	Former    []string             `json:"former,omitempty"`
	Ready     bool                 `json:"ready"`
	Image     string               `json:"image"`
	Labels    map[string]string    `json:"labels"`
	Network   plugin.NetworkPolicy `json:"network"`
	Workspace string               `json:"workspace"`
	Workdir   string               `json:"workdir"`
	HasEnv    bool                 `json:"has_env"`
}

// The files of a sandbox's directory.
const (
	recordFile   = "record.json"
	bootFile     = "boot" // the start of the guest for which the network rules are in force
	workspaceDir = "workspace"
)

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (d *Driver) recordsDir() string { return filepath.Join(d.config.StateDir, "sandboxes") }

func (d *Driver) recordDir(id string) string { return filepath.Join(d.recordsDir(), id) }

func (d *Driver) loadRecord(id string) (*record, error) {
	if !validID.MatchString(id) {
		return nil, fs.ErrNotExist
	}
	text, err := os.ReadFile(filepath.Join(d.recordDir(id), recordFile))
	if err != nil {
		return nil, err
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return nil, err
	}
	return &rec, nil
}

func (d *Driver) saveRecord(rec *record) error {
	return writeJSON(filepath.Join(d.recordDir(rec.ID), recordFile), rec)
}

// changeRecord edits a stored record; two processes may renew a lease at once.
func (d *Driver) changeRecord(id string, edit func(*record)) error {
	lock := flock.New(filepath.Join(d.recordDir(id), "lock"))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer lock.Unlock()
	rec, err := d.loadRecord(id)
	if err != nil {
		return err
	}
	edit(rec)
	return d.saveRecord(rec)
}

func (d *Driver) recordIDs() ([]string, error) {
	entries, err := os.ReadDir(d.recordsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, plugin.Errorf(plugin.KindInternal, "cannot read the driver's records: %w", err)
	}
	ids := make([]string, 0, len(entries))
	for _, entry := range entries {
		ids = append(ids, entry.Name())
	}
	return ids, nil
}

// bootOf returns the guest's start that the network rules were last set for.
func (d *Driver) bootOf(id string) string {
	text, err := os.ReadFile(filepath.Join(d.recordDir(id), bootFile))
	if err != nil {
		return ""
	}
	return string(text)
}

func (d *Driver) setBoot(id, boot string) error {
	return writeFile(filepath.Join(d.recordDir(id), bootFile), []byte(boot))
}

// sandbox is the record as the host wants it, with what sbx says now.
func (r *record) sandbox(row entry) *plugin.Sandbox {
	sandbox, ours := plugin.SandboxFromLabels(r.Labels)
	if !ours {
		sandbox = &plugin.Sandbox{ID: r.ID}
	}
	sandbox.Handle = []byte(r.Sandbox)
	sandbox.State = row.state()
	if !r.Ready {
		sandbox.State = plugin.StateCreating
	}
	sandbox.Image = r.Image
	sandbox.Network = r.Network
	sandbox.Workdir = r.Workdir
	details, err := json.Marshal(map[string]string{"sbx_name": r.Sandbox, "sbx_status": row.Status, "workspace": r.Workspace})
	if err == nil {
		sandbox.Details = details
	}
	return sandbox
}

// sandboxName is a new name in sbx. A name whose create failed can stay taken
// although nothing shows it (docker/sbx-releases#129), so a repetition has another.
func sandboxName(id string, attempt int) string {
	name := "sandboxctl-" + id
	if attempt > 0 {
		name = fmt.Sprintf("%s.%s", name, strings.ToLower(newMark()[:6]))
	}
	return name
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(text, '\n'))
}

// writeFile replaces a file at once; a reader sees the old content or the new.
func writeFile(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err = file.Write(text); err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return renameOver(file.Name(), path)
}

// renameOver is os.Rename, repeated for a moment on systems that refuse it while
// another process has the old file open.
func renameOver(from, to string) error {
	var err error
	for range 20 {
		if err = os.Rename(from, to); err == nil || !errors.Is(err, fs.ErrPermission) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
