package opensandbox

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const testToken = "0123456789abcdef0123456789abcdef"

// scan feeds a stream in pieces and returns the data and the marks.
func scan(stream []byte, piece int) (data []byte, marks []string) {
	s := newMarkScanner(testToken, func(p []byte) { data = append(data, p...) }, func(w string) { marks = append(marks, w) })
	for len(stream) > 0 {
		n := min(piece, len(stream))
		s.write(stream[:n])
		stream = stream[n:]
	}
	s.flush()
	return data, marks
}

func TestMarks(t *testing.T) {
	m := func(word string) string { return "\x00" + testToken + ":" + word + "\x00" }
	for _, c := range []struct {
		in, data string
		marks    []string
	}{
		{"", "", nil},
		{"plain", "plain", nil},
		{m("s 12") + "out" + m("x 0"), "out", []string{"s 12", "x 0"}},
		{"a\x00" + m("a") + "\x00b", "a\x00\x00b", []string{"a"}},
		{"\x00" + testToken, "\x00" + testToken, nil},
		{"\x00" + testToken + ":never ends", "\x00" + testToken + ":never ends", nil},
		{"\x00" + testToken + ":" + strings.Repeat("y", 100) + "\x00", "\x00" + testToken + ":" + strings.Repeat("y", 100) + "\x00", nil},
		{"\x00" + testToken[:31] + m("x 1"), "\x00" + testToken[:31], []string{"x 1"}},
		{"\x00" + testToken + ":" + m("x 1"), "\x00" + testToken + ":", []string{"x 1"}},
	} {
		for _, piece := range []int{1, 2, 7, 33, 1000} {
			data, marks := scan([]byte(c.in), piece)
			if string(data) != c.data || fmt.Sprint(marks) != fmt.Sprint(c.marks) {
				t.Errorf("%q in pieces of %d: %q and %q", c.in, piece, data, marks)
			}
		}
	}
}

// FuzzMarks: how the stream is cut must not matter, and what is no mark must come through.
func FuzzMarks(f *testing.F) {
	f.Add([]byte("a\x00"+testToken+":x 0\x00b"), 3)
	f.Add(bytes.Repeat([]byte{0}, 50), 1)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		whole, marks := scan(stream, max(len(stream), 1))
		cut, cutMarks := scan(stream, max(piece%64, 1))
		if !bytes.Equal(whole, cut) || fmt.Sprint(marks) != fmt.Sprint(cutMarks) {
			t.Errorf("%q: %q %q, cut %q %q", stream, whole, marks, cut, cutMarks)
		}
		if !bytes.Contains(stream, []byte(testToken)) && !bytes.Equal(whole, stream) {
			t.Errorf("%q became %q", stream, whole)
		}
	})
}

func TestEvents(t *testing.T) {
	big := strings.Repeat("x", 5<<20)
	for name, c := range map[string]struct {
		body string
		code int
		out  string
		kind plugin.Kind
	}{
		"bare":           {`{"type":"init","text":"1"}` + "\n\n" + `{"type":"stdout","text":"hi"}` + "\n\n" + `{"type":"execution_complete"}` + "\n\n", 0, "hi", ""},
		"documented":     {"event: stdout\ndata: {\"type\":\"stdout\",\"text\":\"hi\"}\n\ndata:{\"type\":\"error\",\"error\":{\"ename\":\"E\",\"evalue\":\"3\",\"traceback\":null}}\n\n", 3, "hi", ""},
		"ping after":     {`{"type":"ping"}` + "\n\n" + `{"type":"execution_complete"}` + "\n\n" + `{"type":"ping"}`, 0, "", ""},
		"rubbish after":  {`{"type":"execution_complete"}` + "\n\n<html>", 0, "", ""},
		"killed":         {`{"type":"error","error":{"evalue":"-1","traceback":["signal: killed"]}}` + "\n\n", -1, "", ""},
		"5 MB line":      {`{"type":"stdout","text":"` + big + `"}` + "\n\n" + `{"type":"execution_complete"}`, 0, big[:maxOutput], ""},
		"unknown type":   {`{"type":"status","text":"x"}` + "\n\n" + `{"type":"execution_complete"}`, 0, "", ""},
		"cannot start":   {`{"type":"error","error":{"evalue":"fork/exec bash: permission denied"}}`, 0, "", plugin.KindInternal},
		"late failure":   {`{"code":"RUNTIME_ERROR","message":"deadline"}` + "\n\n", 0, "", plugin.KindInternal},
		"no terminal":    {`{"type":"init","text":"1"}` + "\n\n", 0, "", plugin.KindIndeterminate},
		"empty":          {"", 0, "", plugin.KindIndeterminate},
		"cut in a frame": {`{"type":"execution_comp`, 0, "", plugin.KindInternal},
	} {
		got, err := readEvents(strings.NewReader(c.body))
		if plugin.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err == nil && (got.exitCode != c.code || got.output != c.out) {
			t.Errorf("%s: %d, %d bytes", name, got.exitCode, len(got.output))
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"type\":\"stdout\",\"text\":\"a\"}\n\n{\"type\":\"execution_complete\"}\n\n"))
	f.Add([]byte(`{"type":"error","error":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := readEvents(bytes.NewReader(body))
		if err == nil && !bytes.Contains(body, []byte("e")) {
			t.Errorf("%q ended as %+v without saying so", body, got)
		}
	})
}

func TestAnswers(t *testing.T) {
	for body, want := range map[string]string{
		`{"code":"DOCKER::SANDBOX_NOT_FOUND","message":"gone"}`:                                 "SANDBOX_NOT_FOUND gone",
		`{"detail":{"code":"KUBERNETES::POD_FAILED","message":"no"}}`:                           "POD_FAILED no",
		`{"detail":[{"loc":["body","timeout"],"msg":"too small"},{"loc":["q",0],"msg":"bad"}]}`: " body.timeout: too small; q.0: bad",
		`{"detail":"Not Found"}`:          " Not Found",
		`{"error":"Unauthorized"}`:        " Unauthorized",
		`unauthorized` + "\n":             " unauthorized",
		``:                                " Bad Gateway",
		`<html><body>nginx</body></html>`: " Bad Gateway",
		`null`:                            " Bad Gateway",
		`{"detail":null,"code":5}`:        ` {"detail":null,"code":5}`,
	} {
		a := parseAnswer(http.StatusBadGateway, []byte(body))
		if got := a.code + " " + a.message; got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"detail":[{"loc":[1,{}],"msg":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if parseAnswer(500, body).message == "" {
			t.Errorf("%q says nothing", body)
		}
	})
}

// What a stopped command's children go on writing must not fill the driver's memory.
func TestSpoolIsBounded(t *testing.T) {
	t.Parallel()
	s := newSpool(func(bool) {})
	done := make(chan struct{})
	go func() {
		defer close(done)
		piece := make([]byte, 1<<20)
		for range 3 * spoolMost >> 20 {
			s.add(false, piece)
		}
	}()
	size := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.size
	}
	for deadline := time.Now().Add(time.Minute); size() <= spoolMost && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // for an unbounded one to go on
	if n := size(); n <= spoolMost || n > spoolMost+1<<20 {
		t.Errorf("%d bytes are kept, want a little more than %d", n, spoolMost)
	}
	s.close(true)
	<-done
}
