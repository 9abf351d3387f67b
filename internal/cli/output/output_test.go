package output

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestTail(t *testing.T) {
	for name, test := range map[string]struct {
		limit     int
		input     string
		want      string
		truncated bool
	}{
		"empty":                        {10, "", "", false},
		"exactly the limit":            {4, "abcd", "abcd", false},
		"one more":                     {4, "abcde", "bcde", true},
		"starts on a line":             {10, "1\n22\n333\n4444\n", "333\n4444\n", true},
		"a long line is not thrown":    {10, strings.Repeat("x", 50) + "\n", "xxxxxxxxx\n", true},
		"half of it has to be kept":    {10, strings.Repeat("x", 50) + "\nEND", "xxxxxx\nEND", true},
		"no character is cut":          {5, "äöü", "öü", true},
		"bytes that are no characters": {4, "\xff\xff\xff\xff\xff", "\xff\xff\xff\xff", true},
	} {
		for _, piece := range []int{1, 3, 1000} {
			tail := NewTail(test.limit)
			for rest := test.input; rest != ""; rest = rest[min(piece, len(rest)):] {
				if n, err := tail.Write([]byte(rest[:min(piece, len(rest))])); err != nil || n != min(piece, len(rest)) {
					t.Fatal(n, err)
				}
			}
			if got := string(tail.Bytes()); got != test.want || tail.Truncated() != test.truncated || tail.Total() != int64(len(test.input)) {
				t.Errorf("%s, pieces of %d: %q, truncated %v, total %d", name, piece, got, tail.Truncated(), tail.Total())
			}
		}
	}
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\xffä\n"), 3, 2)
	f.Fuzz(func(t *testing.T, data []byte, limit, piece int) {
		limit, piece = 1+abs(limit)%100, 1+abs(piece)%100
		tail := NewTail(limit)
		for rest := data; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			_, _ = tail.Write(rest[:min(piece, len(rest))])
		}
		kept := tail.Bytes()
		if !bytes.HasSuffix(data, kept) || len(kept) > limit || len(data) <= limit && len(kept) != len(data) {
			t.Errorf("kept %q of %q with limit %d", kept, data, limit)
		}
		if tail.Truncated() && len(data) > 8 && len(kept) < limit/2-utf8.UTFMax {
			t.Errorf("only %d of %d bytes were kept", len(kept), limit)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func TestBytes(t *testing.T) {
	if text, encoding := Bytes([]byte("ä\x00\n")); text != "ä\x00\n" || encoding != EncodingUTF8 {
		t.Errorf("%q, %s", text, encoding)
	}
	text, encoding := Bytes([]byte("a\xff"))
	if decoded, err := base64.StdEncoding.DecodeString(text); err != nil || string(decoded) != "a\xff" || encoding != EncodingBase64 {
		t.Errorf("%q, %s", text, encoding)
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain ä 日本": "plain ä 日本", "a\nb\tc": "a b c", "\x1b[2J\a": "\uFFFD[2J\uFFFD", "\u202eevil": "\uFFFDevil", "\u0085\u009b": "\uFFFD\uFFFD", "\xff": "\uFFFD",
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %q", text, got)
		}
	}
}

type sample struct {
	Header
	Value string   `json:"value"`
	List  []string `json:"list"`
}

func (s *sample) Text(p *Printer) { p.Line("value %s", s.Value) }

func TestFinish(t *testing.T) {
	failure := &Error{Class: "failed", Message: "it broke\nbadly", Hint: "mend it", Details: []string{"\x1b[1mlast words"}}
	for name, test := range map[string]struct {
		format      Format
		failure     *Error
		stdout, err string
	}{
		"text":         {Text, nil, "value <v>\n", ""},
		"text, failed": {Text, failure, "value <v>\n", "sandboxctl: it broke badly\n  | \uFFFD[1mlast words\nhint: mend it\n"},
		"JSON":         {JSON, nil, `{"schema":"sandboxctl/v1","kind":"k","ok":true,"value":"<v>","list":[]}` + "\n", ""},
		"JSON, failed": {JSON, failure, `{"schema":"sandboxctl/v1","kind":"k","ok":false,"error":{"class":"failed","message":"it broke\nbadly","hint":"mend it","retryable":false,"details":["\u001b[1mlast words"]},"value":"<v>","list":[]}` + "\n", ""},
	} {
		var stdout, stderr bytes.Buffer
		printer := New(&stdout, &stderr, test.format, Environment{})
		printer.Status("not on a terminal")
		if err := printer.Finish("k", &sample{Value: "<v>", List: []string{}}, test.failure); err != nil {
			t.Fatal(err)
		}
		if stdout.String() != test.stdout || stderr.String() != test.err {
			t.Errorf("%s:\n%q\n%q", name, stdout.String(), stderr.String())
		}
		if test.format == JSON && !json.Valid(stdout.Bytes()) {
			t.Errorf("%s: not JSON", name)
		}
	}
}

func TestColour(t *testing.T) {
	for name, test := range map[string]struct {
		color    string
		env      map[string]string
		coloured bool
	}{
		"a buffer":           {"auto", nil, false},
		"always":             {"always", map[string]string{"NO_COLOR": "1"}, true},
		"never":              {"never", map[string]string{"CLICOLOR_FORCE": "1"}, false},
		"forced":             {"auto", map[string]string{"CLICOLOR_FORCE": "1", "TERM": "dumb"}, true},
		"NO_COLOR wins":      {"auto", map[string]string{"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, false},
		"an empty NO_COLOR":  {"auto", map[string]string{"CLICOLOR_FORCE": "1", "NO_COLOR": ""}, true},
		"CLICOLOR_FORCE = 0": {"auto", map[string]string{"CLICOLOR_FORCE": "0"}, false},
	} {
		var stdout bytes.Buffer
		printer := New(&stdout, &stdout, Text, Environment{Color: test.color, Getenv: func(name string) string { return test.env[name] }})
		printer.Table([]string{"NAME"}, [][]string{{"x"}})
		if got := strings.Contains(stdout.String(), "\x1b["); got != test.coloured {
			t.Errorf("%s: %q", name, stdout.String())
		}
	}
}

func TestTable(t *testing.T) {
	var stdout bytes.Buffer
	printer := New(&stdout, &stdout, Text, Environment{})
	printer.Table([]string{"NAME", "STATE"}, [][]string{{"日本", "running"}, {"a-long-name", ""}})
	if want := "NAME         STATE\n日本         running\na-long-name\n"; stdout.String() != want {
		t.Errorf("got\n%s", stdout.String())
	}
}

// A table is for reading on a terminal and for programs everywhere else, so only the
// former is made to fit.
func TestTableFitsTheTerminal(t *testing.T) {
	long := "nightly-build-of-the-whole-pipeline-on-branch-main-0123456789"
	rows := func() [][]string {
		return [][]string{{long, "sb-aeym522xo4ns", "in 59m"}, {"short", "sb-ye5623uqfbkw", "expired"}}
	}
	for width, want := range map[int]string{
		0:  "NAME" + strings.Repeat(" ", 59) + "ID               EXPIRES\n" + long + "  sb-aeym522xo4ns  in 59m\nshort" + strings.Repeat(" ", 58) + "sb-ye5623uqfbkw  expired\n",
		50: "NAME                      ID               EXPIRES\nnightly-bui...0123456789  sb-aeym522xo4ns  in 59m\nshort                     sb-ye5623uqfbkw  expired\n",
		36: "NAME        ID               EXPIRES\nnigh...789  sb-aeym522xo4ns  in 59m\nshort       sb-ye5623uqfbkw  expired\n",
		10: "NAME      ID               EXPIRES\nnig...89  sb-aeym522xo4ns  in 59m\nshort     sb-ye5623uqfbkw  expired\n",
	} {
		var stdout bytes.Buffer
		printer := New(&stdout, &stdout, Text, Environment{})
		printer.outWidth = width
		printer.Table([]string{"NAME", "ID", "EXPIRES"}, rows())
		if stdout.String() != want {
			t.Errorf("%d columns:\n%s", width, stdout.String())
		}
	}
	var stdout bytes.Buffer
	printer := New(&stdout, &stdout, Text, Environment{})
	printer.outWidth = 20
	printer.Table([]string{"NAME", "STATUS"}, [][]string{{"bad", "the last column goes on in the next line"}})
	if want := "NAME  STATUS\nbad   the last column goes on in the next line\n"; stdout.String() != want {
		t.Errorf("got\n%s", stdout.String())
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short", "exactly-ten": "exactly-ten", "twelve-bytes": "twel...ytes", "日本語の長い名前です": "日本...です",
	} {
		if got := shorten(text, 11); got != want {
			t.Errorf("shorten(%q) = %q", text, got)
		}
	}
}

// Whoever has a white terminal must be able to read everything, and whoever has a black
// one too; on one of them the bright colours, yellow and cyan cannot be read.
func TestColoursAreReadableOnBlackAndWhite(t *testing.T) {
	var stdout bytes.Buffer
	printer := New(&stdout, &stdout, Text, Environment{Color: "always"})
	printer.Table([]string{"NAME"}, [][]string{{"x"}})
	printer.Line("%s %s %s %s", printer.Mark("ok", true), printer.Mark("failed", false), printer.Caution("warning"), printer.Heading("heading"))
	printer.Warn("careful")
	printer.Failure(&Error{Message: "it broke", Hint: "mend it"})
	allowed := map[string]bool{"0": true, "1": true, "2": true, "31": true, "32": true, "35": true}
	seen := 0
	for _, match := range regexp.MustCompile("\x1b\\[([0-9;]*)m").FindAllStringSubmatch(stdout.String(), -1) {
		seen++
		if !allowed[match[1]] {
			t.Errorf("the style %s is used", match[1])
		}
	}
	if seen < 12 {
		t.Errorf("only %d styles were found in %q", seen, stdout.String())
	}
}

func TestTimes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for back, want := range map[time.Duration]string{0: "0s ago", 59 * time.Second: "59s ago", 61 * time.Second: "1m ago", 3 * time.Hour: "3h ago", 119*time.Minute + 59*time.Second: "1h59m ago", 10*time.Hour + 30*time.Minute: "10h ago", 47 * time.Hour: "47h ago", 50 * time.Hour: "2d ago", -time.Hour: "0s ago"} {
		if got := Ago(now.Add(-back), now); got != want {
			t.Errorf("%s: %q", back, got)
		}
	}
	past, future := now.Add(-time.Second), now.Add(90*time.Minute)
	if Until(nil, now) != "never" || Until(&past, now) != "expired" || Until(&now, now) != "expired" || Until(&future, now) != "in 1h30m" {
		t.Errorf("%s %s %s", Until(nil, now), Until(&past, now), Until(&future, now))
	}
}
