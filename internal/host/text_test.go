package host

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sandboxctl/sandboxctl/plugin"
)

func TestStderrTailKeepsThePanicAndTheEnd(t *testing.T) {
	var tail stderrTail
	write := func(text string) {
		// In pieces, as a pipe may hand it over.
		for piece := range slices.Chunk([]byte(text), 7) {
			if n, err := tail.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	write("not a panic: really\npanic: boom\n\ngoroutine 1 [running]:\n")
	if headline, lines := tail.report(&redactor{}); headline != "panic: boom" || lines[0] != "panic: boom" || len(lines) != 2 {
		t.Errorf("%q %q", headline, lines)
	}
	for i := range 10_000 {
		write(fmt.Sprintf("goroutine line %d\n", i))
	}
	write("the end")
	headline, lines := tail.report(&redactor{})
	if headline != "panic: boom" || len(lines) != linesShown || lines[linesShown-1] != "the end" {
		t.Errorf("%q %q", headline, lines)
	}
	if len(tail.kept) > stderrKept {
		t.Errorf("%d bytes kept", len(tail.kept))
	}
}

func TestEnvironOnWindowsFoldsCase(t *testing.T) {
	env := newEnviron([]string{"Path=C:\\bin", "=C:=C:\\work", "SystemRoot=C:\\Windows", "Secret=x"}, "windows")
	if got := env.forDriver(); !slices.Equal(got, []string{"PATH=C:\\bin", "SYSTEMROOT=C:\\Windows"}) {
		t.Errorf("got %q", got)
	}
	values, _, err := env.declared(plugin.Info{Env: []plugin.EnvVar{{Name: "TOKEN"}}}, map[string]string{"TOKEN": "SECRET"})
	if err != nil || values["TOKEN"] != "x" {
		t.Errorf("got %v %v", values, err)
	}
}

func TestRedactorKnowsEscapedSecretsToo(t *testing.T) {
	var hide redactor
	hide.learn([]string{"pa\"ss\\word", "ab", ""})
	var out bytes.Buffer
	if _, err := hide.writer(&out).Write([]byte(`a pa"ss\word b pa\"ss\\word ab`)); err != nil {
		t.Fatal(err)
	}
	if out.String() != "a *** b *** ab" {
		t.Errorf("got %q", out.String())
	}
}

// One secret can be the beginning of another.
func TestRedactorLeavesNoRest(t *testing.T) {
	var hide redactor
	hide.learn([]string{"secret", "secret-and-more", "secret-and"})
	if got := hide.text("a secret-and-more, secret-and, secret"); got != "a ***, ***, ***" {
		t.Errorf("got %q", got)
	}
}

func TestProxyPasswordsAreKnown(t *testing.T) {
	env := newEnviron([]string{
		"HTTPS_PROXY=http://me:pass%40word@proxy.example.com:3128", "http_proxy=you:other-word@proxy.example.com",
		"ALL_PROXY=socks5://proxy.example.com:1080", "NO_PROXY=a:b@c",
	}, "linux")
	if got := env.proxyPasswords(); !slices.Equal(got, []string{"pass%40word", "pass@word", "other-word"}) {
		t.Errorf("got %q", got)
	}
}

// Whatever a program prints, the error about it is one short line for a terminal.
func FuzzForeignOutput(f *testing.F) {
	f.Add("1|1|unix|/tmp/x|grpc|", "panic: x\n")
	f.Add("Hello\x1b[31m", "\xff\xfe\n\n")
	f.Add("9223372036854775808|1||", "fatal error: "+strings.Repeat("é", 400))
	f.Fuzz(func(t *testing.T, stdout, stderr string) {
		sub := &subprocess{process: &process{cmd: &exec.Cmd{}}, hide: &redactor{}}
		_, _ = sub.process.first.Write([]byte(stdout))
		_, _ = sub.process.tail.Write([]byte(stderr))
		err := explainHandshake(Found{Name: "x", Path: "/x"}, sub, plugin.Errorf(plugin.KindInternal, "%s", stdout))
		_, lines := sub.process.tail.report(sub.hide)
		for _, line := range append(lines, err.Error()) {
			if len(line) > 2*lineShown || !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) && r != utf8.RuneError }) {
				t.Errorf("not fit for a terminal: %q", line)
			}
		}
	})
}
