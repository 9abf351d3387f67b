package guest

import (
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	for stat, want := range map[string]struct {
		parent int
		alive  bool
	}{
		"12 (sh) S 7 12 12 0":         {7, true},
		"12 (a) R 1 (b)) S 7 12 12 0": {7, true},
		"12 (sh) Z 7 12 12 0":         {0, false},
		"12 (sh)":                     {0, false},
		"":                            {0, false},
	} {
		if parent, alive := parseStat([]byte(stat)); parent != want.parent || alive != want.alive {
			t.Errorf("%q: %d, %v", stat, parent, alive)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 7 12 12 0"))
	f.Add([]byte(") "))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if parent, alive := parseStat(stat); !alive && parent != 0 {
			t.Errorf("a dead process with the parent %d", parent)
		}
	})
}

func FuzzRecords(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\nshort:x\n")
	f.Add("::::::\n\x00:")
	f.Fuzz(func(t *testing.T, database string) {
		_ = scanRecords(strings.NewReader(database), 7, func(fields []string) bool {
			if len(fields) < 7 {
				t.Errorf("a record of %d fields", len(fields))
			}
			return true
		})
	})
}
