package host

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync/atomic"
)

// shortestSecret is the length in bytes below which a value is not looked for: it
// would turn ordinary words into asterisks and be guessed anyway.
const shortestSecret = 6

// redactor cuts the values of secret variables out of what drivers write. It knows
// none until the driver said which they are.
type redactor struct {
	replace atomic.Pointer[strings.Replacer]
}

func (r *redactor) learn(secrets []string) {
	// The longest first: one secret can be the beginning of another, whose rest
	// would stay.
	secrets = slices.SortedFunc(slices.Values(secrets), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range secrets {
		if len(secret) < shortestSecret {
			continue
		}
		pairs = append(pairs, secret, "***")
		// Drivers log JSON, where a quote in a secret is escaped.
		if quoted, err := json.Marshal(secret); err == nil {
			if inner := string(quoted[1 : len(quoted)-1]); inner != secret {
				pairs = append(pairs, inner, "***")
			}
		}
	}
	r.replace.Store(strings.NewReplacer(pairs...))
}

func (r *redactor) text(text string) string {
	if replace := r.replace.Load(); replace != nil {
		return replace.Replace(text)
	}
	return text
}

// writer returns w behind the redactor. What is written in one call is looked
// through as one, so a caller writes whole lines.
func (r *redactor) writer(w io.Writer) io.Writer { return redactedWriter{r, w} }

type redactedWriter struct {
	redactor *redactor
	w        io.Writer
}

func (w redactedWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(w.w, w.redactor.text(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
