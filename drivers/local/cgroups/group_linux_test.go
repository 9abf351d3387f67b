package cgroups

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestLimitFiles writes to files as the kernels have them: not all account for swap.
func TestLimitFiles(t *testing.T) {
	limits := Limits{CPUs: 0.5, MemoryBytes: 1 << 28}
	for name, test := range map[string]struct {
		unified bool
		files   []string
		want    map[string]string
		fails   bool
	}{
		"version 2": {
			unified: true, files: []string{"cpu.max", "memory.max", "memory.swap.max", "memory.oom.group"},
			want: map[string]string{"cpu.max": "50000 100000", "memory.max": "268435456", "memory.swap.max": "0", "memory.oom.group": "1"},
		},
		"version 2 without swap": {
			unified: true, files: []string{"cpu.max", "memory.max"},
			want: map[string]string{"cpu.max": "50000 100000", "memory.max": "268435456"},
		},
		"version 2 that lost a controller": {unified: true, files: []string{"cpu.max"}, fails: true},
		"version 1": {
			files: []string{"cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
			want: map[string]string{
				"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000",
				"memory.limit_in_bytes": "268435456", "memory.memsw.limit_in_bytes": "268435456",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte("before"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := Directory{Path: dir, Unified: test.unified, Controllers: []Controller{CPU, Memory}}.limit(limits)
			if test.fails != (err != nil) {
				t.Fatalf("got %v", err)
			}
			if test.fails {
				return
			}
			got := map[string]string{}
			for _, file := range test.files {
				content, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				got[file] = string(content)
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestSmallestQuota(t *testing.T) {
	got := Directory{Unified: true}.settings(CPU, Limits{CPUs: 0.001})
	if got[0].value != "1000 100000" {
		t.Errorf("got %v", got)
	}
}

func TestKills(t *testing.T) {
	dir := t.TempDir()
	group := &Group{Dirs: []Directory{{Path: dir, Unified: true, Controllers: []Controller{CPU, Memory}}}}
	if got := group.Kills(); got != 0 {
		t.Errorf("without a file: %d", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("low 0\noom 4\noom_kill 3\noom_group_kill 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := group.Kills(); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
}

func TestRemoveNothing(t *testing.T) {
	group := &Group{Dirs: []Directory{{Path: filepath.Join(t.TempDir(), "gone"), Unified: true}}}
	if err := group.Remove(context.Background()); err != nil {
		t.Error(err)
	}
}
