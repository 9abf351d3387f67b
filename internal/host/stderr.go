package host

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	// stderrKept is how much of a driver's stderr is kept, in bytes.
	stderrKept = 64 << 10
	// linesShown and lineShown bound what of it a message carries: lines, and bytes
	// of each.
	linesShown = 10
	lineShown  = 500
)

// stderrTail keeps the end of what a driver writes to stderr, and the first line of
// a panic even when the goroutines listed after it fill the tail.
type stderrTail struct {
	mu   sync.Mutex
	kept []byte
	// line is the beginning of the line that is being written.
	line     []byte
	headline string
}

// Write never fails.
func (t *stderrTail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest, ended := data, true; ended; {
		var part []byte
		part, rest, ended = bytes.Cut(rest, []byte("\n"))
		t.line = append(t.line, part[:min(len(part), lineShown-len(t.line))]...)
		if ended {
			t.endLine()
		}
	}
	t.kept = append(t.kept, data...)
	if over := len(t.kept) - stderrKept; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(data), nil
}

func (t *stderrTail) endLine() {
	if t.headline == "" && isPanic(string(t.line)) {
		t.headline = string(t.line)
	}
	t.line = t.line[:0]
}

func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// report returns the first line of a panic, if there was one, and the last lines,
// or those of the panic from its first on.
func (t *stderrTail) report(hide *redactor) (headline string, lines []string) {
	t.mu.Lock()
	t.endLine()
	text, headline := string(t.kept), t.headline
	t.mu.Unlock()
	all := strings.FieldsFunc(hide.text(text), func(r rune) bool { return r == '\n' })
	first := max(len(all)-linesShown, 0)
	for i, line := range all {
		if headline != "" && isPanic(line) {
			first = i
			break
		}
	}
	for _, line := range all[first:min(first+linesShown, len(all))] {
		lines = append(lines, printable(line))
	}
	return printable(hide.text(headline)), lines
}

// printable makes a foreign line fit for a terminal and cuts it.
func printable(line string) string {
	clean := strings.TrimRightFunc(strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, line), unicode.IsSpace)
	if len(clean) <= lineShown {
		return clean
	}
	end := lineShown
	for !utf8.RuneStart(clean[end]) {
		end--
	}
	return clean[:end] + "..."
}
