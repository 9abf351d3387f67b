package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// check says why an executable would not be started. It is looked at each time, by
// a few calls that cost microseconds; a checksum on each start would cost more than
// the start.
func (h *Host) check(name, path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return errUnreadable(name, path, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return errUnreadable(name, path, err)
	}
	refused := func(reason StartReason, hint, format string, args ...any) error {
		return &StartError{
			Driver: name, Path: path, Reason: reason, Hint: hint,
			Message: fmt.Sprintf("driver %s: %s", name, fmt.Sprintf(format, args...)),
		}
	}
	if !info.Mode().IsRegular() {
		return refused(ReasonNotExecutable, "name the driver's executable", "%s is not a regular file", path)
	}
	if h.goos != "windows" && info.Mode().Perm()&0o111 == 0 {
		return refused(ReasonNotExecutable, "chmod +x "+resolved, "%s is not executable", path)
	}
	// A link can be turned to elsewhere by whoever may write to its directory.
	for _, place := range []string{filepath.Dir(path), filepath.Dir(resolved), resolved} {
		if who := writableByOthers(place); who != "" {
			return refused(ReasonUntrusted, "chown it to yourself or root and chmod go-w "+place,
				"%s is not run, because %s %s", path, place, who)
		}
	}
	return nil
}

func errUnreadable(name, path string, err error) error {
	failed := &StartError{Driver: name, Path: path, Reason: ReasonMissing, Cause: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		failed.Message = fmt.Sprintf("driver %s is not at %s", name, path)
		failed.Hint = "install it there, or correct the path in the configuration"
	default:
		failed.Reason = ReasonNotExecutable
		failed.Message = fmt.Sprintf("driver %s at %s cannot be read: %s", name, path, pathCause(err))
		failed.Hint = "make the file and its directories accessible to this user"
	}
	return failed
}

// pathCause is the part of a file error that does not repeat the path.
func pathCause(err error) error {
	var typed *fs.PathError
	if errors.As(err, &typed) {
		return typed.Err
	}
	return err
}
