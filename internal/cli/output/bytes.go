package output

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"
)

// The encodings of captured output in JSON.
const (
	EncodingUTF8   = "utf-8"
	EncodingBase64 = "base64"
)

// Bytes returns captured output as JSON can hold it exactly.
func Bytes(data []byte) (text, encoding string) {
	if utf8.Valid(data) {
		return string(data), EncodingUTF8
	}
	return base64.StdEncoding.EncodeToString(data), EncodingBase64
}

// Tail keeps the last bytes of a stream in bounded memory.
type Tail struct {
	limit int
	// ring holds up to limit bytes; next is where the oldest one is once it is full.
	ring  []byte
	next  int
	total int64
}

// NewTail returns a Tail of at most limit bytes.
func NewTail(limit int) *Tail { return &Tail{limit: limit} }

// Write takes all of data.
func (t *Tail) Write(data []byte) (int, error) {
	n := len(data)
	t.total += int64(n)
	if len(data) > t.limit {
		data = data[len(data)-t.limit:]
	}
	if room := t.limit - len(t.ring); room > 0 {
		added := data[:min(room, len(data))]
		t.ring = append(t.ring, added...)
		data = data[len(added):]
	}
	for len(data) > 0 && t.limit > 0 {
		copied := copy(t.ring[t.next:], data)
		t.next = (t.next + copied) % t.limit
		data = data[copied:]
	}
	return n, nil
}

// Total is how many bytes were written.
func (t *Tail) Total() int64 { return t.total }

// Truncated says that bytes were dropped.
func (t *Tail) Truncated() bool { return t.total > int64(t.limit) }

// Bytes returns what is kept. A tail that lost its head starts at a line's beginning if
// that keeps half of it, and never inside a UTF-8 character.
func (t *Tail) Bytes() []byte {
	kept := append(append([]byte{}, t.ring[t.next:]...), t.ring[:t.next]...)
	if !t.Truncated() {
		return kept
	}
	if end := bytes.IndexByte(kept, '\n'); end >= 0 && len(kept)-end-1 >= t.limit/2 {
		return kept[end+1:]
	}
	return skipPartialRune(kept)
}

// skipPartialRune drops the rest of a UTF-8 character whose start was cut off. Bytes
// that are no UTF-8 are kept.
func skipPartialRune(data []byte) []byte {
	for skip := range min(utf8.UTFMax, len(data)) {
		if utf8.RuneStart(data[skip]) {
			return data[skip:]
		}
	}
	return data
}
