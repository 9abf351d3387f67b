package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const indexExt = ".id"

// escapeName makes a file name out of a sandbox name. Capitals are escaped because some file systems fold case and would
// take "A" and "a" for one name.
func escapeName(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 'A' && c <= 'Z' {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescapeName is the inverse of escapeName; ok is false for a file that escapeName cannot have named.
func unescapeName(file string) (name string, ok bool) {
	name, err := url.PathUnescape(file)
	return name, err == nil && ValidateName(name) == nil && escapeName(name) == file
}

func (l *Ledger) indexPath(name string) string {
	return filepath.Join(l.dir, namesDir, escapeName(name)+indexExt)
}

// errBadIndex says that an index file exists and holds no id.
var errBadIndex = errors.New("it does not hold a sandbox id")

// indexed returns the id that the index has for name. The error is fs.ErrNotExist when there is none.
func (l *Ledger) indexed(name string) (string, error) {
	data, err := os.ReadFile(l.indexPath(name))
	if err != nil {
		return "", err
	}
	id := strings.TrimSuffix(string(data), "\n")
	if !IsID(id) {
		return "", errBadIndex
	}
	return id, nil
}

// setIndex points name at id. The caller holds the lock of the name.
func (l *Ledger) setIndex(name, id string) error {
	return replaceFile(l.indexPath(name), []byte(id+"\n"))
}

// dropIndex removes the entry of name if it still points at id. The caller holds the lock of the name.
func (l *Ledger) dropIndex(name, id string) error {
	current, err := l.indexed(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && current != id {
		return nil
	}
	if err != nil && !errors.Is(err, errBadIndex) {
		return err
	}
	if err := os.Remove(l.indexPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
