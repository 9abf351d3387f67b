package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// load reads the record with this id and its raw file. A record moves from records/ to gone/ and never back, so looking in
// this order cannot miss it.
func (l *Ledger) load(id string) (Record, []byte, error) {
	for _, path := range []string{l.recordPath(id), l.gonePath(id)} {
		r, raw, err := readRecord(path, id, nil)
		if !errors.Is(err, fs.ErrNotExist) {
			return r, raw, err
		}
	}
	return Record{}, nil, &NotFoundError{Query: id}
}

// readRecord reads one record and returns it with its raw file, which is in buf if that is large enough. The error is a
// Problem for a file that cannot be understood, and fs.ErrNotExist as it is.
func readRecord(path, id string, buf []byte) (Record, []byte, error) {
	raw, err := readFile(path, buf)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil, err
	}
	var r Record
	if err == nil {
		r, err = decodeRecord(id, raw)
	}
	if err != nil {
		return Record{}, raw, Problem{Path: path, ID: id, Err: err}
	}
	return r, raw, nil
}

// growForRead makes room in buf, within what a record may take.
func growForRead(buf []byte) ([]byte, error) {
	if len(buf) > maxRecord {
		return nil, fmt.Errorf("it is larger than %d bytes", maxRecord)
	}
	if len(buf) == cap(buf) {
		buf = slices.Grow(buf, max(2048, len(buf)))
	}
	return buf, nil
}

// ids lists the records of one subdirectory by file name, and the names of files that are neither records nor temporary.
func (l *Ledger) ids(sub string) (ids, strays []string, err error) {
	d, err := os.Open(filepath.Join(l.dir, sub))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, l.dirError("read", err)
	}
	defer d.Close()
	files, err := d.Readdirnames(-1)
	if err != nil {
		return nil, nil, l.dirError("read", err)
	}
	for _, file := range files {
		if id, ok := strings.CutSuffix(file, recordExt); ok && IsID(id) {
			ids = append(ids, id)
		} else if !strings.HasPrefix(file, ".") {
			strays = append(strays, file)
		}
	}
	return ids, strays, nil
}
