package local_test

import (
	"bytes"
	"io"
	"strings"
)

// screen is what a person at a terminal sees, and does at the sight of it. Steps are
// taken in order.
type screen struct {
	text  bytes.Buffer
	seen  int
	steps []step
}

type step struct {
	sight  string
	action func()
}

func (s *screen) on(sight string, action func()) { s.steps = append(s.steps, step{sight, action}) }

func (s *screen) Write(data []byte) (int, error) {
	s.text.Write(data)
	for len(s.steps) > 0 {
		at := strings.Index(s.text.String()[s.seen:], s.steps[0].sight)
		if at < 0 {
			break
		}
		s.seen += at + len(s.steps[0].sight)
		action := s.steps[0].action
		s.steps = s.steps[1:]
		go action()
	}
	return len(data), nil
}

func (s *screen) left() string {
	var sights []string
	for _, each := range s.steps {
		sights = append(sights, each.sight)
	}
	return strings.Join(sights, ", ")
}

// newTypist returns a keyboard and its other end.
func newTypist() (io.Reader, func(string)) {
	read, write := io.Pipe()
	return read, func(keys string) { _, _ = io.WriteString(write, keys) }
}
