//go:build linux

package execd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// uploadMemory is how much of an upload is held in memory before temporary files are used.
const uploadMemory = 32 << 20

func (s *server) upload(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(uploadMemory); err != nil {
		fail(w, http.StatusBadRequest, "INVALID_FILE", "error parsing form: "+err.Error())
		return
	}
	defer r.MultipartForm.RemoveAll()
	metas, files := r.MultipartForm.File["metadata"], r.MultipartForm.File["file"]
	if len(metas) == 0 {
		fail(w, http.StatusBadRequest, "INVALID_FILE_METADATA", "metadata file is missing")
		return
	}
	if len(metas) != len(files) {
		fail(w, http.StatusBadRequest, "INVALID_FILE", "metadata and file counts differ")
		return
	}
	for i := range metas {
		if status, code, err := storeUpload(metas[i], files[i]); err != nil {
			fail(w, status, code, err.Error())
			return
		}
	}
}

func storeUpload(meta, content *multipart.FileHeader) (int, string, error) {
	var m struct {
		Path string `json:"path"`
		permission
	}
	mf, err := meta.Open()
	if err != nil {
		return http.StatusInternalServerError, "RUNTIME_ERROR", err
	}
	defer mf.Close()
	if err := json.NewDecoder(mf).Decode(&m); err != nil || m.Path == "" {
		return http.StatusBadRequest, "INVALID_FILE_METADATA", fmt.Errorf("error parsing metadata: %v", err)
	}
	if m.Mode == 0 {
		m.Mode = 755
	}
	path := expand(m.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return http.StatusInternalServerError, "RUNTIME_ERROR", err
	}
	src, err := content.Open()
	if err != nil {
		return http.StatusInternalServerError, "RUNTIME_ERROR", err
	}
	defer src.Close()
	dst, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return http.StatusInternalServerError, "RUNTIME_ERROR", err
	}
	defer dst.Close()
	if _, err := io.Copy(dst, src); err != nil {
		return http.StatusInternalServerError, "RUNTIME_ERROR", err
	}
	if err := m.apply(path); err != nil {
		return http.StatusInternalServerError, "RUNTIME_ERROR", err
	}
	return 0, "", nil
}

func (s *server) download(w http.ResponseWriter, r *http.Request) {
	path := expand(r.URL.Query().Get("path"))
	if path == "" {
		fail(w, http.StatusBadRequest, "MISSING_QUERY", "missing query parameter 'path'")
		return
	}
	f, err := os.Open(path)
	if err != nil {
		fileError(w, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		fileError(w, err)
		return
	}
	if info.IsDir() {
		// A directory is answered with an absurd length and no body.
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(math.MaxInt64, 10))
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	}
	if strings.HasPrefix(path, "/proc/") {
		fail(w, http.StatusInternalServerError, "RUNTIME_ERROR", "seek failed")
		return
	}
	offset, limit := r.URL.Query().Get("offset"), r.URL.Query().Get("limit")
	if offset != "" || limit != "" {
		lineWindow(w, f, offset, limit)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(filepath.Base(path)))
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// lineWindow answers with lines counted from 1.
func lineWindow(w http.ResponseWriter, f io.Reader, offset, limit string) {
	first, last := 1, math.MaxInt
	if n, err := strconv.Atoi(offset); err == nil && n > 0 {
		first = n
	}
	if n, err := strconv.Atoi(limit); err == nil {
		last = first + n - 1
	}
	data, _ := io.ReadAll(f)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for i, line := range bytes.SplitAfter(data, []byte("\n")) {
		if i+1 >= first && i+1 <= last {
			_, _ = w.Write(line)
		}
	}
}
