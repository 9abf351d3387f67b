//go:build linux

package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandboxctl/sandboxctl/plugin/plugintest"
)

const module = "github.com/sandboxctl/sandboxctl"

// notHere are command lines that these tests cannot run: they build or clone, need a
// terminal (which internal/cli has tests for), an account, or a driver of the reader's.
var notHere = regexp.MustCompile(`^(make|git|export PATH|cat >>|sandboxctl (shell|completion)|source)\b|modal|acme`)

// TestSessions types what the pages tell a new user to type, in their order, and compares
// what comes with what they say.
func TestSessions(t *testing.T) {
	bin := build(t)
	for page, least := range map[string]int{"../README.md": 10, "getting-started.md": 12} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			dir, err := os.MkdirTemp("", "d")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			for _, file := range []string{"README.md", "Makefile"} {
				content := []byte("test:\n\t@echo tested\n")
				if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
			t.Cleanup(func() {
				remove := exec.Command(filepath.Join(bin, "sandboxctl"), "rm", "--force", "--all")
				remove.Env = env
				if out, err := remove.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
			typed := commands(t, page)
			if len(typed) < least {
				t.Fatalf("only %d commands were found", len(typed))
			}
			answers := enter(t, dir, env, typed)
			for i, command := range typed {
				if command.output != "" && !alike(command.output, answers[i].output) {
					t.Errorf("$ %s\nanswers\n%s\nand the page says\n%s", command.line, answers[i].output, command.output)
				}
				if answers[i].status != "0" && !strings.Contains(command.line, "exit "+answers[i].status) {
					t.Errorf("$ %s\nfails with %s\n%s", command.line, answers[i].status, answers[i].output)
				}
			}
		})
	}
}

// build puts sandboxctl and the local driver into a private directory.
func build(t *testing.T) string {
	t.Helper()
	bin, err := os.MkdirTemp("", "bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	if err := plugintest.Build(bin, module+"/cmd/sandboxctl", module+"/drivers/local/cmd/..."); err != nil {
		t.Fatal(err)
	}
	return bin
}

// typed is a command line of a page, and what the page says that it prints.
type typed struct{ line, output string }

// commands are those in the console blocks of a page.
func commands(t *testing.T, page string) []typed {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []typed
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		skipped := true
		for line := range strings.Lines(block[1]) {
			command, is := strings.CutPrefix(line, "$ ")
			switch {
			case is:
				command = strings.TrimSpace(command)
				if skipped = notHere.MatchString(command); !skipped {
					found = append(found, typed{line: command})
				}
			case !skipped:
				found[len(found)-1].output += line
			}
		}
	}
	return found
}

type answer struct{ output, status string }

// enter runs all commands in one shell, since some set variables for others.
func enter(t *testing.T, dir string, env []string, lines []typed) []answer {
	t.Helper()
	const mark = "@@@@"
	var script strings.Builder
	for _, command := range lines {
		fmt.Fprintf(&script, "%s\necho \"%s$?\"\n", command.line, mark)
	}
	shell := exec.Command("bash", "-c", script.String())
	shell.Dir, shell.Env = dir, env
	out, err := shell.CombinedOutput()
	parts := regexp.MustCompile(`(?s)(.*?)`+mark+`(\d+)\n`).FindAllStringSubmatch(string(out), -1)
	if err != nil || len(parts) != len(lines) {
		t.Fatalf("%d of %d commands ended: %v\n%s", len(parts), len(lines), err, out)
	}
	var answers []answer
	for _, part := range parts {
		answers = append(answers, answer{output: part[1], status: part[2]})
	}
	return answers
}

// alike compares but for what is different each time: ids, numbers but those of answers
// that are only a number, blanks of columns, and what the page leaves out with "...".
func alike(said, got string) bool {
	if regexp.MustCompile(`^\d+\n$`).MatchString(said) {
		return said == got
	}
	for _, each := range [][2]string{{`sb-[a-z2-7]{12}`, "ID"}, {`\d+`, "0"}, {` +`, " "}} {
		what := regexp.MustCompile(each[0])
		said, got = what.ReplaceAllString(said, each[1]), what.ReplaceAllString(got, each[1])
	}
	// A line of dots alone is any number of lines.
	pattern := regexp.MustCompile(`\\\.\\\.\\\.\n?`).ReplaceAllLiteralString(regexp.QuoteMeta(said), `(?s:.*)`)
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}
