package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"
)

// StateDirError says that the state directory as a whole cannot be used for something. Class: set-up missing.
type StateDirError struct {
	Dir string
	Op  string // what failed, as a verb with its preposition: "create", "write to"
	Err error
}

func (e *StateDirError) Error() string {
	cause := errors.Unwrap(e.Err)
	for next := cause; next != nil; next = errors.Unwrap(next) {
		cause = next
	}
	if cause == nil {
		cause = e.Err
	}
	return fmt.Sprintf("cannot %s the state directory %s: %v", e.Op, e.Dir, cause)
}

// Hint says what to do.
func (e *StateDirError) Hint() string {
	const elsewhere = "set SANDBOXCTL_STATE_DIR to another directory"
	switch {
	case errors.Is(e.Err, syscall.ENOSPC), errors.Is(e.Err, syscall.EDQUOT):
		return "free some space or " + elsewhere
	case errors.Is(e.Err, fs.ErrPermission), errors.Is(e.Err, syscall.EROFS):
		return "make it writable for you or " + elsewhere
	}
	return elsewhere
}

func (e *StateDirError) Unwrap() error { return e.Err }

// NameTakenError says that another sandbox, not gone, has the name. Class: conflict.
type NameTakenError struct {
	Existing Record
}

func (e *NameTakenError) Error() string {
	r := e.Existing
	if r.Abandoned() {
		return fmt.Sprintf("the name %q is held by an unfinished create (%s, driver %s, started %s) whose process has died",
			r.Name, r.ID, r.Driver, stamp(r.CreatedAt))
	}
	return fmt.Sprintf("a sandbox named %q exists already (%s, driver %s, %s, created %s)",
		r.Name, r.ID, r.Driver, r.State, stamp(r.CreatedAt))
}

// Hint says what to do.
func (e *NameTakenError) Hint() string {
	if e.Existing.Abandoned() {
		return "run `sandboxctl gc` to clear it"
	}
	return "choose another name, or pass --if-not-exists"
}

// NotFoundError says that no sandbox answers to Query. Class: not found.
type NotFoundError struct {
	Query string
	// Near holds up to three names of existing sandboxes that are spelled almost the same.
	Near []string
	// Gone is the tombstone, when there was such a sandbox within TombstoneTTL.
	Gone *Record
}

func (e *NotFoundError) Error() string {
	if e.Gone != nil {
		reason := ""
		if e.Gone.GoneReason != "" {
			reason = ": " + e.Gone.GoneReason
		}
		return fmt.Sprintf("the sandbox %q (%s) is gone since %s%s", e.Gone.Name, e.Gone.ID, stamp(e.Gone.GoneAt), reason)
	}
	return fmt.Sprintf("there is no sandbox %q", e.Query)
}

// Hint says what to do.
func (e *NotFoundError) Hint() string {
	switch {
	case e.Gone != nil:
		return ""
	case len(e.Near) > 0:
		return "did you mean " + strings.Join(e.Near, " or ") + "?"
	}
	return "run `sandboxctl ls` to see yours"
}

// AmbiguousError says that Query is the prefix of several ids. Class: usage.
type AmbiguousError struct {
	Query string
	// IDs holds every match, in order.
	IDs []string
	// Candidates holds the records of the first matches, at most ten.
	Candidates []Record
}

func (e *AmbiguousError) Error() string {
	var list strings.Builder
	for i, r := range e.Candidates {
		if i > 0 {
			list.WriteString(", ")
		}
		list.WriteString(r.ID)
		if r.Name != r.ID {
			fmt.Fprintf(&list, " (%s)", r.Name)
		}
	}
	if more := len(e.IDs) - len(e.Candidates); more > 0 {
		fmt.Fprintf(&list, " and %d more", more)
	}
	return fmt.Sprintf("%q matches %d sandboxes: %s", e.Query, len(e.IDs), list.String())
}

// Hint says what to do.
func (e *AmbiguousError) Hint() string { return "give more of the id" }

// StateError says that a change does not fit the state the record is in, typically because another process was faster.
// Class: conflict.
type StateError struct {
	Record Record
	Op     string // the refused change, as a verb: "mark ready"
}

func (e *StateError) Error() string {
	r := e.Record
	if r.State == StateGone {
		return fmt.Sprintf("cannot %s the sandbox %q (%s): it is gone since %s", e.Op, r.Name, r.ID, stamp(r.GoneAt))
	}
	return fmt.Sprintf("cannot %s the sandbox %q (%s) while it is in state %s", e.Op, r.Name, r.ID, r.State)
}

// Problem is a file in the state directory that could not be understood. It is an error that concerns one sandbox and
// never the others. Class: failed.
type Problem struct {
	Path string
	// ID is the sandbox the file belongs to, as far as its name tells.
	ID  string
	Err error
}

func (p Problem) Error() string {
	return fmt.Sprintf("cannot use the ledger file %s: %v; repair or delete it", p.Path, p.Err)
}

func (p Problem) Unwrap() error { return p.Err }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
