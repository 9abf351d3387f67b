//go:build linux

package execd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

type event struct {
	Type          string      `json:"type"`
	Text          string      `json:"text,omitempty"`
	Timestamp     int64       `json:"timestamp"`
	ExecutionTime int64       `json:"execution_time,omitempty"`
	Error         *eventError `json:"error,omitempty"`
}

type eventError struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// stream is the body of a command's response.
type stream struct {
	w    http.ResponseWriter
	opts Options

	mu sync.Mutex
}

func (s *server) newStream(w http.ResponseWriter, _ *http.Request) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, opts: s.opts}
}

func (st *stream) send(ev event) {
	ev.Timestamp = time.Now().UnixMilli()
	data, err := json.Marshal(ev)
	if err != nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.opts.SSE {
		data = append([]byte("event: "+ev.Type+"\ndata: "), data...)
	}
	_, _ = st.w.Write(append(data, '\n', '\n'))
	st.w.(http.Flusher).Flush()
}

// pingEvery keeps an idle stream alive until the returned function is called.
func (st *stream) pingEvery(d time.Duration) func() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-stop:
				return
			case <-t.C:
				st.send(event{Type: "ping", Text: "pong"})
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// end keeps the body open for the hold time, as the daemon does after the last event.
func (st *stream) end(hold time.Duration) {
	time.Sleep(hold)
	if st.opts.Unterminated {
		panic(http.ErrAbortHandler)
	}
}

// tail sends what is appended to the file every 100 ms and the rest when the command ends.
func (s *server) tail(st *stream, kind, path string, done <-chan struct{}) {
	lines := lineSplitter{mode: s.opts.Lines, emit: func(text string) { st.send(event{Type: kind, Text: text}) }}
	var offset int64
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for last := false; !last; {
		select {
		case <-done:
			last = true
		case <-ticker.C:
		}
		offset += lines.readFrom(path, offset)
	}
	lines.flush()
}

// lineSplitter cuts output into one event per line, the way the daemon's releases do.
type lineSplitter struct {
	mode    string
	emit    func(string)
	pending bytes.Buffer
	afterCR bool
}

func (l *lineSplitter) readFrom(path string, offset int64) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return 0
	}
	data, _ := io.ReadAll(f)
	for _, b := range data {
		l.add(b)
	}
	return int64(len(data))
}

func (l *lineSplitter) add(b byte) {
	if b != '\n' && b != '\r' {
		l.afterCR = false
		l.pending.WriteByte(b)
		return
	}
	switch {
	case l.mode == LinesKept:
		l.pending.WriteByte(b)
		l.flush()
	case l.pending.Len() > 0:
		l.flush()
	case b == '\n' && l.afterCR:
	case l.mode != LinesDropBlank:
		l.emit("\n")
	}
	l.afterCR = b == '\r'
}

func (l *lineSplitter) flush() {
	if l.pending.Len() > 0 {
		l.emit(strings.ToValidUTF8(l.pending.String(), "\uFFFD"))
		l.pending.Reset()
	}
}
