package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// describe says how a command ended.
func describe(got ran) string {
	text := fmt.Sprintf("%s %d", got.status.Reason, got.status.Code)
	if got.status.Signal != "" {
		text += " SIG" + got.status.Signal
	}
	return text
}

// short quotes the beginning of a text for a report.
func short(text string) string {
	const most = 120
	if len(text) > most {
		return fmt.Sprintf("%q... (%d bytes)", text[:most], len(text))
	}
	return fmt.Sprintf("%q", text)
}

// wantText compares bytes and says where they differ.
func (t *T) wantText(what, got, want string) {
	if got == want {
		return
	}
	if len(got)+len(want) < 200 {
		t.Errorf("%s is %q, want %q", what, got, want)
		return
	}
	same := 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	t.Errorf("%s has %d bytes, want %d, and differs from byte %d on", what, len(got), len(want), same)
}

// allBytes is every byte value.
func allBytes() string {
	var all strings.Builder
	for c := range 256 {
		all.WriteByte(byte(c))
	}
	return all.String()
}

// octal writes bytes for the guest's printf.
func octal(text string) string {
	var escaped strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&escaped, `\%03o`, text[i])
	}
	return escaped.String()
}

// unix writes a time as `stat -c %Y` does.
func unix(moment time.Time) string { return strconv.FormatInt(moment.Unix(), 10) }
