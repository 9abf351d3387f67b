package sbx

import (
	"bytes"
	"io"
	"strings"
)

// markByte encloses the supervisor's words in a stream.
const markByte = 0x1e

// wordsLimit is longer than anything that the supervisor says at once.
const wordsLimit = 256

// noiseLimit is how much of what sbx itself prints is kept.
const noiseLimit = 8 << 10

// gate is one of a command's output streams as sbx delivers it. It passes on what
// stands between the supervisor's "start" and "end". Before and after, sbx prints
// words of its own, on either stream: the daemon's header, warnings, that a sandbox
// was started, that there is an update.
type gate struct {
	open    []byte // how the supervisor's words begin
	out     io.Writer
	said    func(words []string)
	phase   gatePhase
	held    []byte // the beginning, perhaps, of the supervisor's words
	noise   []byte // the last of what stood before start
	failure error  // of out
}

// promptWord is what a gate says when sbx asks to sign in.
const promptWord = "prompt"

type gatePhase int

const (
	beforeStart gatePhase = iota
	running
	afterEnd
)

func newGate(mark string, out io.Writer, said func(words []string)) *gate {
	return &gate{open: []byte(string(rune(markByte)) + mark + " "), out: out, said: said}
}

// Write never fails: a stream that is not read any more must not block the guest.
func (g *gate) Write(data []byte) (int, error) {
	buffer := data
	if len(g.held) > 0 {
		buffer = append(g.held, data...)
		g.held = nil
	}
	for len(buffer) > 0 {
		at := bytes.Index(buffer, g.open)
		if at < 0 {
			keep := g.partial(buffer)
			g.pass(buffer[:len(buffer)-keep])
			g.held = append(g.held, buffer[len(buffer)-keep:]...)
			break
		}
		g.pass(buffer[:at])
		buffer = buffer[at:]
		end := bytes.IndexByte(buffer[1:min(len(buffer), wordsLimit)], markByte)
		if end < 0 && len(buffer) < wordsLimit {
			g.held = append(g.held, buffer...)
			break
		}
		if end < 0 {
			g.pass(buffer[:1])
			buffer = buffer[1:]
			continue
		}
		g.hear(string(buffer[len(g.open) : end+1]))
		buffer = buffer[end+2:]
	}
	return len(data), nil
}

// partial is how many bytes at the end of data can be the beginning of open.
func (g *gate) partial(data []byte) int {
	from := max(0, len(data)-len(g.open)+1)
	for at := from; at < len(data); at++ {
		if data[at] == markByte && bytes.HasPrefix(g.open, data[at:]) {
			return len(data) - at
		}
	}
	return 0
}

func (g *gate) hear(text string) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return
	}
	switch {
	case words[0] == "start" && g.phase == beforeStart:
		g.phase = running
	case words[0] == "end" && g.phase == running:
		g.phase = afterEnd
	}
	g.said(words)
}

func (g *gate) pass(data []byte) {
	if len(data) == 0 {
		return
	}
	switch g.phase {
	case beforeStart:
		g.noise = append(g.noise, data...)
		g.noise = g.noise[max(0, len(g.noise)-noiseLimit):]
		if bytes.Contains(g.noise, []byte(promptMark)) {
			g.said([]string{promptWord})
		}
	case running:
		if g.failure == nil {
			_, g.failure = g.out.Write(data)
		}
	}
}
