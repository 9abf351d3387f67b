package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// said is a message that somebody looks up, among the bold words of a paragraph.
	bold = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	said = regexp.MustCompile("`([^`]+)`")
	// open is what stands for the names in it.
	open = regexp.MustCompile(`\.\.\.|"x"|\bx\b|--memory|; `)
)

// gVisors is what gVisor says, and not this program.
const gVisors = "cannot create gofer process ... operation not permitted"

// TestMessagesExist looks for every message of the page for those who look one up in the
// texts of the program.
func TestMessagesExist(t *testing.T) {
	page, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := literals(t)
	messages := 0
	for _, run := range bold.FindAllStringSubmatch(string(page), -1) {
		for _, message := range said.FindAllStringSubmatch(strings.ReplaceAll(run[1], "\n", " "), -1) {
			if message[1] == gVisors {
				continue
			}
			messages++
			for _, part := range open.Split(message[1], -1) {
				if part = strings.TrimSpace(part); !texts.hold(part) {
					t.Errorf("no text of the program holds %q of the message `%s`", part, message[1])
				}
			}
		}
	}
	if messages < 20 {
		t.Errorf("only %d messages were found", messages)
	}
}

type programTexts []string

func (texts programTexts) hold(part string) bool {
	for _, text := range texts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// literals are the strings in the sources, but for those of tests.
func literals(t *testing.T) programTexts {
	t.Helper()
	var texts programTexts
	for _, tree := range []string{"../internal", "../plugin", "../drivers"} {
		err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "testing"):
				return filepath.SkipDir
			case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".pb.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						texts = append(texts, text)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}
