package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestGeneratedFilesAreFresh compares what is committed with what the commands and
// types say now.
func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Chdir("../../..")
	for _, generated := range []struct {
		dir, pattern string
		generate     func(string) error
	}{
		{"docs/schema", "*.json", schemas},
		{"completions", "*", completions},
	} {
		fresh := t.TempDir()
		if err := generated.generate(fresh); err != nil {
			t.Fatal(err)
		}
		for _, name := range names(t, fresh, generated.pattern, generated.dir) {
			want, _ := os.ReadFile(filepath.Join(fresh, name))
			got, _ := os.ReadFile(filepath.Join(generated.dir, name))
			if !bytes.Equal(got, want) {
				t.Errorf("%s/%s is not what the sources say; run `make generate`", generated.dir, name)
			}
		}
	}
}

// names lists the files of both folders, so that one that is left over is seen too.
func names(t *testing.T, fresh, pattern, committed string) []string {
	t.Helper()
	found := map[string]bool{}
	for _, dir := range []string{fresh, committed} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s holds no %s (%v)", dir, pattern, err)
		}
		for _, path := range paths {
			found[filepath.Base(path)] = true
		}
	}
	var all []string
	for name := range found {
		all = append(all, name)
	}
	return all
}

// TestManualHasEveryCommand makes the manual pages, which are not committed.
func TestManualHasEveryCommand(t *testing.T) {
	dir := t.TempDir()
	if err := manual(dir); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"sandboxctl.1", "sandboxctl-exec.1", "sandboxctl-driver-info.1", "sandboxctl-exit-codes.7"} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Error(err)
		}
		if !bytes.Contains(text, []byte(".TH \"SANDBOXCTL")) {
			t.Errorf("%s is no manual page: %.80q", page, text)
		}
	}
}
