package sbx

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

const (
	header = "Starting sandboxd daemon...\nDaemon started (PID: 55276, socket: /tmp/x)\nLogs: /tmp/daemon.log\n"
	banner = "\n\n╭────╮\n│ Docker Sandboxes Update Available {1} [2] │\n╰────╯\n"
)

func TestParseList(t *testing.T) {
	for text, want := range map[string]int{
		header + `{"sandboxes":[{"name":"a","status":"running"}]}` + banner:                                  1,
		"{\n  \"sandboxes\": [\n    {\"name\": \"a\", \"id\": 3},\n    {\"name\": \"b\"}\n  ]\n}\n" + banner: 2,
		`{"sandboxes":[]}`: 0, `{"sandboxes":null}`: 0, "  {\"sandboxes\": []}": 0,
		"": -1, "No sandboxes found.\n": -1, `{}`: -1, `{"sandboxes":{}}`: -1, "{\"sandboxes\":[{\"name\":": -1, header: -1, "[]": -1,
	} {
		entries, err := parseList([]byte(text))
		if (err != nil) != (want < 0) || err == nil && len(entries) != want {
			t.Errorf("%q: %v, %v", text, entries, err)
		}
		if err != nil && plugin.KindOf(err) != plugin.KindUnavailable {
			t.Errorf("%q: kind %s", text, plugin.KindOf(err))
		}
	}
}

func TestStates(t *testing.T) {
	for status, want := range map[string]plugin.State{"running": plugin.StateRunning, "Running": plugin.StateRunning, "stopped": plugin.StateStopped, "creating": plugin.StateCreating, "": plugin.StateStopped} {
		if got := (entry{Status: status}).state(); got != want {
			t.Errorf("%q: %s", status, got)
		}
	}
}

// Whatever stands around it, the first JSON value that opens a line is found.
func FuzzFirstJSON(f *testing.F) {
	f.Add([]byte(header), []byte(banner), []byte(`{"sandboxes":[]}`))
	f.Add([]byte("WARN: {broken\n"), []byte("}"), []byte("[1,\n2]"))
	f.Fuzz(func(t *testing.T, before, after, value []byte) {
		var any json.RawMessage
		_ = firstJSON(before, &any) // must not panic
		if !json.Valid(value) || len(value) == 0 || value[0] != '{' && value[0] != '[' || bytes.ContainsAny(before, "{[") {
			return
		}
		text := append(append(append(append([]byte{}, before...), '\n'), value...), '\n')
		var got json.RawMessage
		if err := firstJSON(append(text, after...), &got); err != nil || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(value)) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	})
}

const testMark = "0123456789abcdef"

// In however many pieces a stream comes, what passes the gate is the same.
func FuzzGate(f *testing.F) {
	f.Add([]byte("noise"), []byte("out\x1eput"), 3)
	f.Add([]byte("\x1e"+testMark[:5]), []byte("\x1e"+testMark), 1)
	f.Add([]byte(""), []byte("\x1e\x1e"+testMark+"\x1e"), 2)
	f.Fuzz(func(t *testing.T, noise, content []byte, piece int) {
		opening := []byte("\x1e" + testMark + " ")
		if piece < 1 || bytes.Contains(noise, opening) || bytes.Contains(content, opening) {
			return
		}
		stream := append([]byte{}, noise...)
		stream = append(stream, "\x1e"+testMark+" start a b\x1e"...)
		stream = append(stream, content...)
		stream = append(stream, "\x1e"+testMark+" end 3 0 1\x1eafter"...)
		var out bytes.Buffer
		var said []string
		g := newGate(testMark, &out, func(words []string) { said = append(said, strings.Join(words, " ")) })
		for rest := stream; len(rest) > 0; {
			n := min(piece, len(rest))
			if _, err := g.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(out.Bytes(), content) || strings.Join(said, "|") != "start a b|end 3 0 1" {
			t.Errorf("stream %q passed %q and said %q", stream, out.Bytes(), said)
		}
		if len(noise) < noiseLimit && !bytes.Equal(g.noise, noise) {
			t.Errorf("noise %q, want %q", g.noise, noise)
		}
	})
}

func TestGateIsNotFooledByALongWord(t *testing.T) {
	var out bytes.Buffer
	g := newGate(testMark, &out, func([]string) {})
	g.Write([]byte("\x1e" + testMark + " start\x1e"))
	long := "\x1e" + testMark + " " + strings.Repeat("x", 2*wordsLimit)
	g.Write([]byte(long + "\x1e" + testMark + " end 0 0 0\x1e"))
	if out.String() != long {
		t.Errorf("%q", out.String())
	}
}

func TestExplain(t *testing.T) {
	for text, want := range map[string]plugin.Kind{
		"ERROR: You are not authenticated to Docker\n\nSign in with: sbx login":                                    plugin.KindAuth,
		"Error: user is not authenticated to Docker":                                                               plugin.KindAuth,
		"ERROR: global network policy has not been initialized; run x":                                             plugin.KindAuth,
		"ERROR: request failed: 429 Too Many Requests":                                                             plugin.KindRateLimited,
		`ERROR: request failed: 400 Bad Request: invalid memory "512m": memory 512m is below the minimum of 1 GiB`: plugin.KindRefused,
		`ERROR: create sandbox: request failed: 500 Internal Server Error: pull failed for image "X"`:              plugin.KindInvalid,
		"ERROR: failed to create sandbox: request failed: 403 Forbidden: mount policy denied: /x: no":              plugin.KindRefused,
		"container create: Error response from daemon: already exists":                                             plugin.KindConflict,
		"ERROR: inspect exec: Get \"http://socket/sandbox/n/exec/1\": context deadline exceeded":                   plugin.KindUnavailable,
		"ERROR: inspect exec: Get \"http://socket/sandbox/n/exec/1\": unexpected EOF":                              plugin.KindUnavailable,
		"ERROR: ensure daemon: context canceled":                                                                   plugin.KindUnavailable,
		"KVM error: Permission denied (os error 13)":                                                               plugin.KindUnavailable,
		`ERROR: resolve kits: kit "x" cannot be installed — its source is not in your allowlist.`:                  plugin.KindRefused,
		"write /var/lib/x: no space left on device":                                                                plugin.KindUnavailable,
		"ERROR: something new": plugin.KindInternal, "": plugin.KindInternal,
	} {
		err := explain("do it", header+"WARN: failed to refresh token\nWARN: could not acquire docker hub refresh lock, proceeding without cross-process lock: context deadline exceeded\n"+text+banner)
		if err.Kind != want || !strings.Contains(text+err.Message, err.Message) {
			t.Errorf("%q: %s %q", text, err.Kind, err.Message)
		}
		if strings.ContainsAny(err.Message, "╭│\n") || strings.Contains(err.Message, "WARN") {
			t.Errorf("%q: noise in %q", text, err.Message)
		}
	}
}

func TestSettings(t *testing.T) {
	s, err := parseSettings([]byte(`{"binary":"/opt/sbx","memory":"1536m","call_timeout":"5s","create_timeout":"1m"}`))
	if err != nil || s.Binary != "/opt/sbx" || s.memoryBytes != 1536<<20 || s.CallTimeout.Seconds() != 5 || s.CreateTimeout.Minutes() != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{`{"unknown":1}`, `{"memory":"lots"}`, `{"memory":"0g"}`, `{"memory":"2gg"}`, `{"call_timeout":"0s"}`, `{"call_timeout":"x"}`, `[`, `{"memory":"99999999999g"}`} {
		if _, err := parseSettings([]byte(bad)); plugin.KindOf(err) != plugin.KindInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, none := range []string{"", " ", "{}"} {
		if s, err := parseSettings([]byte(none)); err != nil || s != defaultSettings() {
			t.Errorf("%q: %+v, %v", none, s, err)
		}
	}
}
