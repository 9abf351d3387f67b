//go:build linux

package opensandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// BenchmarkExec is what a command costs over the driver's protocol, by the exact route.
func BenchmarkExec(b *testing.B) {
	r := newRig(b, startDouble(b, healthy))
	ref := r.create(b)
	b.Run("true", func(b *testing.B) {
		for b.Loop() {
			r.exec(b, ref, &plugin.ExecRequest{Argv: []string{"true"}})
		}
	})
	b.Run("true by the plain event stream", func(b *testing.B) {
		p := newPlain(b, r.double.URL())
		for b.Loop() {
			p.run(b, "true")
		}
	})
	b.Run("first byte", func(b *testing.B) {
		for b.Loop() {
			r.firstByte(b, ref)
		}
	})
	b.Run("first byte by the plain event stream", func(b *testing.B) {
		p := newPlain(b, r.double.URL())
		for b.Loop() {
			p.firstByte(b)
		}
	})
	const size = 64 << 20
	b.Run("stdout", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			status, err := r.Exec(b.Context(), ref, &plugin.ExecRequest{Argv: []string{"head", "-c", "67108864", "/dev/zero"}},
				&plugin.ExecIO{Stdout: io.Discard, Stderr: io.Discard})
			if err != nil || status.Code != 0 {
				b.Fatal(status, err)
			}
		}
	})
	b.Run("stdin", func(b *testing.B) {
		data := make([]byte, size)
		b.SetBytes(size)
		for b.Loop() {
			if _, err := r.tryExec(b.Context(), ref, &plugin.ExecRequest{Argv: []string{"sh", "-c", "cat >/dev/null"}, Stdin: true}, bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// firstByte waits for output of a command that goes on.
func (r *rig) firstByte(b *testing.B, ref plugin.Ref) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	_, err := r.Exec(ctx, ref, sh("echo x; sleep 5"), &plugin.ExecIO{Stdout: &onWrite{w: io.Discard, do: cancel}, Stderr: io.Discard})
	if err != nil {
		b.Fatal(err)
	}
}

// plain runs commands by execd's event stream, as OpenSandbox's own clients do: without stdin and exact bytes.
type plain struct{ url, id string }

func newPlain(b *testing.B, url string) *plain {
	p := &plain{url: url}
	var box struct{ ID string }
	p.do(b, http.MethodPost, "/v1/sandboxes", `{"image":{"uri":"python:3.12-slim"},"entrypoint":["tail","-f","/dev/null"],"resourceLimits":{}}`, &box)
	p.id = box.ID
	return p
}

func (p *plain) do(b *testing.B, method, path, body string, out any) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("OPEN-SANDBOX-API-KEY", "test-key")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		b.Fatal(err)
	}
}

// until reads the command's events up to one that contains the text.
func (p *plain) until(b *testing.B, command, text string) {
	var at struct{ Endpoint string }
	p.do(b, http.MethodGet, "/v1/sandboxes/"+p.id+"/endpoints/44772", "", &at)
	resp, err := http.Post("http://"+at.Endpoint+"/command", "application/json", strings.NewReader(`{"command":"`+command+`"}`))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	b.Fatalf("no %s", text)
}

func (p *plain) run(b *testing.B, command string) { p.until(b, command, "execution_complete") }

func (p *plain) firstByte(b *testing.B) { p.until(b, "echo x; sleep 1", `"stdout"`) }
