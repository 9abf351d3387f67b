package guest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// InitFD is the descriptor on which the sandbox's first process says that it has made
// what it was to make.
const InitFD = 3

// prepareWorkdir makes the working directory of a sandbox with an image, and says so.
func prepareWorkdir(workdir, user string) {
	reply := Reply{Done: true}
	if failure := makeTemporary(); failure != nil {
		reply = Reply{Error: failure}
	} else if failure := makeWorkdir(workdir, user); failure != nil {
		reply = Reply{Error: failure}
	}
	out := os.NewFile(InitFD, "driver")
	_ = json.NewEncoder(out).Encode(reply)
	_ = out.Close()
}

// makeTemporary makes /tmp where the image has none and gVisor mounts none, as in a
// sandbox with a limit on its disk.
func makeTemporary() *Error {
	const dir = "/tmp"
	err := os.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		// Whatever the umask is.
		err = os.Chmod(dir, 0o777|fs.ModeSticky)
	}
	if err != nil {
		return pathError(dir, err)
	}
	return nil
}

// makeWorkdir makes a directory that is missing. It is the user's, and its parents are
// root's.
func makeWorkdir(workdir, user string) *Error {
	who, failure := findAccount(user)
	if failure != nil {
		return failure
	}
	info, err := os.Stat(workdir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		err = unix.ENOTDIR
	case errors.Is(err, fs.ErrNotExist):
		if err = os.MkdirAll(workdir, 0o755); err == nil {
			err = os.Chown(workdir, int(who.credential.Uid), int(who.credential.Gid))
		}
	}
	if err != nil {
		failure := pathError(workdir, err)
		failure.Message = "the working directory " + strconv.Quote(workdir) + " cannot be made: " + err.Error()
		return failure
	}
	return nil
}
