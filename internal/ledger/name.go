package ledger

import (
	"crypto/rand"
	"fmt"
	"strings"
)

const (
	idPrefix    = "sb-"
	idLength    = 12
	ownerLength = 20
	maxName     = 63
)

// NewID makes a sandbox id: "sb-" and 12 lower-case base32 characters (60 random bits). It is short and plain enough for
// every backend's own names and labels.
func NewID() string { return idPrefix + strings.ToLower(rand.Text()[:idLength]) }

// IsID reports whether s is shaped like a sandbox id.
func IsID(s string) bool {
	random, ok := strings.CutPrefix(s, idPrefix)
	return ok && len(random) == idLength && isBase32(random)
}

func isBase32(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// ValidateName says whether name may be given to a sandbox: 1 to 63 letters, digits, '.', '_' or '-', a letter or digit
// first, and not shaped like an id, which would make lookups ambiguous.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a sandbox name must not be empty")
	case len(name) > maxName:
		return fmt.Errorf("the sandbox name %.20q... has %d characters; at most %d are allowed", name, len(name), maxName)
	case IsID(name):
		return fmt.Errorf("the sandbox name %q looks like a sandbox id; choose another name", name)
	case strings.ContainsFunc(name, func(r rune) bool { return !isNameRune(r) }):
		return fmt.Errorf("the sandbox name %q may hold only letters, digits, '.', '_' and '-'", name)
	case strings.ContainsAny(name[:1], "._-"):
		return fmt.Errorf("the sandbox name %q must start with a letter or a digit", name)
	}
	return nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}
