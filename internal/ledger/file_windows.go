package ledger

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// replaceFile makes path hold data, wholly or not at all. renameio does not support Windows, where a rename cannot be made
// durable either. The temporary file is path's name with a leading '.' and trailing digits; see parseTemp.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// syncDir does nothing: Windows cannot sync a directory.
func syncDir(string) error { return nil }

// readFile is os.ReadFile with a limit, into buf where it fits.
func readFile(path string, buf []byte) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf = buf[:0]
	for {
		if buf, err = growForRead(buf); err != nil {
			return nil, err
		}
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
