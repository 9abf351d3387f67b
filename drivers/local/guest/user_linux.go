package guest

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// account is who a command runs as.
type account struct {
	credential syscall.Credential
	name, home string
}

// findAccount resolves "user[:group]", names or numbers, with the guest's own
// databases. A number need not be in them.
func findAccount(wanted string) (account, *Error) {
	userPart, groupPart, hasGroup := strings.Cut(wanted, ":")
	if userPart == "" {
		userPart = "0"
	}
	found, failure := findUser(userPart)
	if failure != nil {
		return account{}, failure
	}
	if !hasGroup {
		if found.name != "" {
			found.credential.Groups = supplementary(found.name)
		}
		return found, nil
	}
	gid, failure := findGroup(groupPart)
	if failure != nil {
		return account{}, failure
	}
	found.credential.Gid = gid
	return found, nil
}

func findUser(wanted string) (account, *Error) {
	number, notNumber := strconv.ParseUint(wanted, 10, 32)
	result := account{home: "/"}
	known := false
	err := eachRecord("/etc/passwd", 7, func(fields []string) bool {
		uid, uidErr := strconv.ParseUint(fields[2], 10, 32)
		gid, gidErr := strconv.ParseUint(fields[3], 10, 32)
		if uidErr != nil || gidErr != nil {
			return true
		}
		if fields[0] != wanted && (notNumber != nil || uid != number) {
			return true
		}
		known = true
		result = account{name: fields[0], home: fields[5]}
		result.credential.Uid, result.credential.Gid = uint32(uid), uint32(gid)
		return false
	})
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return account{}, &Error{Reason: ReasonUser, Message: "the sandbox's /etc/passwd cannot be read: " + err.Error()}
	case !known && notNumber != nil:
		return account{}, &Error{Reason: ReasonUser, Message: "the sandbox has no user " + strconv.Quote(wanted)}
	case !known:
		result.credential.Uid = uint32(number)
	}
	return result, nil
}

func findGroup(wanted string) (uint32, *Error) {
	if number, err := strconv.ParseUint(wanted, 10, 32); err == nil {
		return uint32(number), nil
	}
	var found *uint32
	_ = eachRecord("/etc/group", 3, func(fields []string) bool {
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && fields[0] == wanted {
			number := uint32(gid)
			found = &number
		}
		return found == nil
	})
	if found == nil {
		return 0, &Error{Reason: ReasonUser, Message: "the sandbox has no group " + strconv.Quote(wanted)}
	}
	return *found, nil
}

// supplementary returns the groups that list a user as a member. Without a readable
// database there are none.
func supplementary(name string) []uint32 {
	var groups []uint32
	_ = eachRecord("/etc/group", 4, func(fields []string) bool {
		for member := range strings.SplitSeq(fields[3], ",") {
			if gid, err := strconv.ParseUint(fields[2], 10, 32); err == nil && member == name {
				groups = append(groups, uint32(gid))
			}
		}
		return true
	})
	return groups
}

// eachRecord calls use with the fields of each line that has at least that many,
// until it returns false.
func eachRecord(path string, fields int, use func([]string) bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return scanRecords(file, fields, use)
}

func scanRecords(from io.Reader, fields int, use func([]string) bool) error {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if record := strings.Split(lines.Text(), ":"); len(record) >= fields && !use(record) {
			return nil
		}
	}
	return lines.Err()
}
