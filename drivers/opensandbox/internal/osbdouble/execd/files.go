//go:build linux

package execd

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type fileInfo struct {
	Path       string    `json:"path"`
	Type       string    `json:"type"`
	Size       int64     `json:"size"`
	ModifiedAt time.Time `json:"modified_at"`
	CreatedAt  time.Time `json:"created_at"`
	Owner      string    `json:"owner"`
	Group      string    `json:"group"`
	Mode       int       `json:"mode"` // the decimal digits are the octal mode
}

func describe(path string, info fs.FileInfo) fileInfo {
	kind := "other"
	switch {
	case info.Mode().IsRegular():
		kind = "file"
	case info.IsDir():
		kind = "directory"
	case info.Mode()&fs.ModeSymlink != 0:
		kind = "symlink"
	}
	out := fileInfo{Path: path, Type: kind, Size: info.Size(), ModifiedAt: info.ModTime(), CreatedAt: info.ModTime()}
	out.Mode, _ = strconv.Atoi(strconv.FormatUint(uint64(info.Mode().Perm()), 8))
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		out.CreatedAt = time.Unix(st.Ctim.Unix())
		out.Owner, out.Group = strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))
		if u, err := user.LookupId(out.Owner); err == nil {
			out.Owner = u.Username
		}
		if g, err := user.LookupGroupId(out.Group); err == nil {
			out.Group = g.Name
		}
	}
	return out
}

// fileError maps an error of the file system the way the daemon does.
func fileError(w http.ResponseWriter, err error) {
	if os.IsNotExist(err) {
		fail(w, http.StatusNotFound, "FILE_NOT_FOUND", "file not found. "+err.Error())
		return
	}
	fail(w, http.StatusInternalServerError, "RUNTIME_ERROR", err.Error())
}

func (s *server) filesInfo(w http.ResponseWriter, r *http.Request) {
	out := map[string]fileInfo{}
	for _, path := range r.URL.Query()["path"] {
		info, err := os.Lstat(expand(path))
		if err != nil {
			fileError(w, err)
			return
		}
		out[path] = describe(path, info)
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *server) removeFiles(w http.ResponseWriter, r *http.Request) {
	for _, path := range r.URL.Query()["path"] {
		path = expand(path)
		info, err := os.Lstat(path)
		if os.IsNotExist(err) {
			continue
		}
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a directory", path)
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			fail(w, http.StatusInternalServerError, "RUNTIME_ERROR", err.Error())
			return
		}
	}
}

func (s *server) moveFiles(w http.ResponseWriter, r *http.Request) {
	var moves []struct{ Src, Dest string }
	if !decode(w, r, &moves) {
		return
	}
	for _, m := range moves {
		src, dest := expand(m.Src), expand(m.Dest)
		if _, err := os.Lstat(src); err != nil {
			fileError(w, err)
			return
		}
		if _, err := os.Lstat(dest); err == nil {
			fail(w, http.StatusInternalServerError, "RUNTIME_ERROR", "destination path already exists: "+dest)
			return
		}
		if err := os.MkdirAll(filepath.Dir(dest), 0o755); err != nil {
			fileError(w, err)
			return
		}
		if err := os.Rename(src, dest); err != nil {
			fileError(w, err)
			return
		}
	}
}

type permission struct {
	Owner string `json:"owner"`
	Group string `json:"group"`
	Mode  int    `json:"mode"`
}

// apply sets the mode (0 means 0755 for a new file) and the owner, after the content is in place.
func (p permission) apply(path string) error {
	if p.Mode != 0 {
		mode, err := strconv.ParseUint(strconv.Itoa(p.Mode), 8, 32)
		if err != nil {
			return fmt.Errorf("invalid mode %d", p.Mode)
		}
		if err := os.Chmod(path, fs.FileMode(mode)); err != nil {
			return err
		}
	}
	uid, gid := -1, -1
	if p.Owner != "" {
		u, err := user.Lookup(p.Owner)
		if err != nil {
			return err
		}
		uid, _ = strconv.Atoi(u.Uid)
	}
	if p.Group != "" {
		g, err := user.LookupGroup(p.Group)
		if err != nil {
			return err
		}
		gid, _ = strconv.Atoi(g.Gid)
	}
	if uid != -1 || gid != -1 {
		return os.Chown(path, uid, gid)
	}
	return nil
}

func (s *server) setPermissions(w http.ResponseWriter, r *http.Request) {
	var wanted map[string]permission
	if !decode(w, r, &wanted) {
		return
	}
	for path, p := range wanted {
		if err := p.apply(expand(path)); err != nil {
			fileError(w, err)
			return
		}
	}
}

func (s *server) searchFiles(w http.ResponseWriter, r *http.Request) {
	root, pattern := expand(r.URL.Query().Get("path")), r.URL.Query().Get("pattern")
	found := []fileInfo{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ok, _ := filepath.Match(pattern, d.Name()); ok {
			if info, err := d.Info(); err == nil {
				found = append(found, describe(path, info))
			}
		}
		return nil
	})
	if err != nil {
		fileError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

func (s *server) replaceInFiles(w http.ResponseWriter, r *http.Request) {
	var wanted map[string]struct{ Old, New string }
	if !decode(w, r, &wanted) {
		return
	}
	counts := map[string]map[string]int{}
	for path, change := range wanted {
		data, err := os.ReadFile(expand(path))
		if err != nil {
			fileError(w, err)
			return
		}
		counts[path] = map[string]int{"replacedCount": strings.Count(string(data), change.Old)}
		if err := os.WriteFile(expand(path), []byte(strings.ReplaceAll(string(data), change.Old, change.New)), 0o644); err != nil {
			fileError(w, err)
			return
		}
	}
	if r.URL.Query().Get("verbose") == "true" {
		writeJSON(w, http.StatusOK, counts)
	}
}

func (s *server) listDirectory(w http.ResponseWriter, r *http.Request) {
	root := expand(r.URL.Query().Get("path"))
	depth := 1
	if v := r.URL.Query().Get("depth"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			fail(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", "invalid depth")
			return
		}
		depth = n
	}
	info, err := os.Lstat(root)
	if err != nil {
		fileError(w, err)
		return
	}
	if !info.IsDir() {
		fail(w, http.StatusBadRequest, "INVALID_FILE", root+" is not a directory")
		return
	}
	writeJSON(w, http.StatusOK, listUpTo(root, depth))
}

func listUpTo(dir string, depth int) []fileInfo {
	out := []fileInfo{}
	if depth == 0 {
		return out
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		path := filepath.Join(dir, e.Name())
		out = append(out, describe(path, info))
		if e.IsDir() {
			out = append(out, listUpTo(path, depth-1)...)
		}
	}
	return out
}

func (s *server) makeDirectories(w http.ResponseWriter, r *http.Request) {
	var wanted map[string]permission
	if !decode(w, r, &wanted) {
		return
	}
	for path, p := range wanted {
		path = expand(path)
		_, before := os.Stat(path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			fileError(w, err)
			return
		}
		if before != nil {
			if err := p.apply(path); err != nil {
				fileError(w, err)
				return
			}
		}
	}
}

func (s *server) removeDirectories(w http.ResponseWriter, r *http.Request) {
	for _, path := range r.URL.Query()["path"] {
		if err := os.RemoveAll(expand(path)); err != nil {
			fileError(w, err)
			return
		}
	}
}

func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		fail(w, http.StatusBadRequest, "INVALID_REQUEST_BODY", "error parsing request: "+err.Error())
		return false
	}
	return true
}
