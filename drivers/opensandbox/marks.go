package opensandbox

import "bytes"

// maxMark bounds the word of a mark.
const maxMark = 32

// markScanner takes the marks out of one channel. Everything else goes through unchanged; at most the beginning of
// what could be a mark is held until more comes.
type markScanner struct {
	prefix []byte // NUL token ':'
	held   []byte
	data   func([]byte)
	mark   func(word string)
}

func newMarkScanner(token string, data func([]byte), mark func(string)) *markScanner {
	return &markScanner{prefix: []byte("\x00" + token + ":"), data: data, mark: mark}
}

// write scans more of the channel. The slices it hands on are valid only during the call.
func (s *markScanner) write(p []byte) {
	if len(s.held) > 0 {
		p = append(s.held, p...)
		s.held = nil
	}
	for len(p) > 0 {
		at := bytes.Index(p, s.prefix)
		if at < 0 {
			s.hold(p, len(p)-s.partial(p))
			return
		}
		end := bytes.IndexByte(p[at+len(s.prefix):], 0)
		if end < 0 && len(p)-at-len(s.prefix) <= maxMark {
			s.hold(p, at)
			return
		}
		next := at + len(s.prefix) + end + 1
		if end < 1 || end > maxMark {
			// It only began like a mark.
			next = at + 1
			s.emit(p[:next])
		} else {
			s.emit(p[:at])
			s.mark(string(p[at+len(s.prefix) : next-1]))
		}
		p = p[next:]
	}
}

// partial is how many bytes at the end of p may be the beginning of a mark.
func (s *markScanner) partial(p []byte) int {
	for n := min(len(p), len(s.prefix)-1); n > 0; n-- {
		if bytes.HasSuffix(p, s.prefix[:n]) {
			return n
		}
	}
	return 0
}

// hold hands out the first n bytes and keeps the rest until more comes.
func (s *markScanner) hold(p []byte, n int) {
	s.emit(p[:n])
	s.held = bytes.Clone(p[n:])
}

func (s *markScanner) emit(p []byte) {
	if len(p) > 0 {
		s.data(p)
	}
}

// flush hands out what was held, at the end of a channel.
func (s *markScanner) flush() {
	if len(s.held) > 0 {
		s.data(s.held)
		s.held = nil
	}
}
