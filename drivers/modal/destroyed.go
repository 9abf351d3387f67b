package modal

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// endLag is how long Modal may go on calling a terminated sandbox running: 35 s
// were seen.
const endLag = 2 * time.Minute

// The driver notes which sandboxes it has terminated, one empty file each,
// because Modal leaves no other way to tell them from running ones for a while.

func (d *Driver) destroyedFile(modalID string) string {
	// Base keeps a forged ID inside the directory.
	return filepath.Join(d.config.StateDir, "destroyed", filepath.Base(modalID))
}

// remember notes that a sandbox has been terminated. Without the note it only
// stays listed a little longer.
func (d *Driver) remember(modalID string) {
	file := d.destroyedFile(modalID)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, nil, 0o600)
	}
	if err != nil {
		d.config.Logger.Warn("the end of the sandbox is not noted", "sandbox", modalID, "error", err)
	}
}

func (d *Driver) isDestroyed(modalID string) bool {
	_, err := os.Stat(d.destroyedFile(modalID))
	return err == nil
}

// forgetDestroyed removes notes that have served their time.
func (d *Driver) forgetDestroyed() {
	dir := filepath.Dir(d.destroyedFile("x"))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // nothing was ever noted, or the next run cleans up
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < endLag {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.config.Logger.Warn("an old note is not removed", "error", err)
		}
	}
}
