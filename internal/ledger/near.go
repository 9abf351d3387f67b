package ledger

import (
	"os"
	"path/filepath"
	"strings"
)

const (
	maxNear     = 3
	maxNearEdit = 2
)

// near returns names of existing sandboxes that are spelled almost like query.
func (l *Ledger) near(query string) []string {
	var names []string
	// The hint is a courtesy; a directory that cannot be read gives none.
	files, _ := os.ReadDir(filepath.Join(l.dir, namesDir))
	for _, file := range files {
		name, ok := unescapeName(strings.TrimSuffix(file.Name(), indexExt))
		if !ok || editDistance(name, query) > maxNearEdit {
			continue
		}
		id, err := l.indexed(name)
		if err != nil {
			continue
		}
		if r, err := l.Get(id); err == nil && r.State != StateGone && r.Name == name {
			names = append(names, name)
		}
		if len(names) == maxNear {
			break
		}
	}
	return names
}

// editDistance counts the single-byte insertions, deletions and substitutions between a and b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
