package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/docs/schema"
	"github.com/sandboxctl/sandboxctl/internal/cli"
)

// validate checks one JSON line against the schema of the kind that it names.
func validate(line []byte) error {
	var object map[string]any
	if err := json.Unmarshal(line, &object); err != nil {
		return err
	}
	kind, _ := object["kind"].(string)
	if _, known := cli.ResultTypes()[kind]; !known {
		kind = schema.Failure
	}
	described, err := readSchema(kind)
	if err != nil {
		return err
	}
	resolved, err := described.Resolve(nil)
	if err != nil {
		return err
	}
	if err := resolved.Validate(object); err != nil {
		return fmt.Errorf("%s is not what docs/schema/%s says: %w", line, schema.FileName(kind), err)
	}
	return undescribed(described, object, kind)
}

func readSchema(kind string) (*jsonschema.Schema, error) {
	data, err := schema.Read(kind)
	if err != nil {
		return nil, err
	}
	var described jsonschema.Schema
	return &described, json.Unmarshal(data, &described)
}

// undescribed finds fields that the schema does not know. The schema itself lets them
// pass, since later versions may have more.
func undescribed(described *jsonschema.Schema, value any, path string) error {
	switch value := value.(type) {
	case map[string]any:
		if described.Properties == nil {
			return nil
		}
		for name, inner := range value {
			property := described.Properties[name]
			if property == nil {
				return fmt.Errorf("%s.%s is in no schema", path, name)
			}
			if err := undescribed(property, inner, path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		for _, entry := range value {
			if described.Items == nil {
				return nil
			}
			if err := undescribed(described.Items, entry, path+"[]"); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastLine passes everything on and remembers the last line.
type lastLine struct {
	to   io.Writer
	line []byte
}

func (l *lastLine) Write(data []byte) (int, error) {
	kept := append(l.line, data...)
	if end := bytes.LastIndexByte(kept[:max(len(kept)-1, 0)], '\n'); end >= 0 {
		kept = kept[end+1:]
	}
	// A guest's endless line is not a result.
	l.line = slices.Clone(kept[:min(len(kept), 1<<20)])
	return l.to.Write(data)
}

// check validates what was written if it was a result in JSON.
func (l *lastLine) check() error {
	if !bytes.HasPrefix(l.line, []byte(`{"schema":"sandboxctl/`)) {
		return nil
	}
	return validate(l.line)
}

// execute runs sandboxctl in this process without a state directory of the user's.
func execute(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	app := &cli.App{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err,
		Environ: []string{"SANDBOXCTL_STATE_DIR=" + t.TempDir(), "XDG_CONFIG_HOME=" + t.TempDir()},
	}
	code = app.Execute(t.Context(), args)
	return out.String(), err.String(), code
}

// TestEveryCommandSpeaksJSON goes through the tree and makes each command fail, and
// explain itself, in JSON.
func TestEveryCommandSpeaksJSON(t *testing.T) {
	var visit func(command *cobra.Command)
	visit = func(command *cobra.Command) {
		path := strings.Fields(command.CommandPath())[1:]
		kind := strings.Join(path, " ")
		if command.Runnable() && !command.HasSubCommands() {
			if _, known := cli.ResultTypes()[kind]; !known {
				t.Errorf("%q has no result type in ResultTypes", kind)
			}
			if _, err := os.Stat(filepath.Join("testdata", "golden", schema.FileName(kind))); err != nil {
				t.Errorf("%q has no golden file: %v", kind, err)
			}
			expectJSON(t, kind, false, append(path, "--json", "--no-such-flag")...)
		}
		expectJSON(t, "help", true, append(path, "--help", "--json")...)
		for _, below := range command.Commands() {
			visit(below)
		}
	}
	root := (&cli.App{}).NewRootCommand()
	root.InitDefaultHelpCmd()
	visit(root)
	expectJSON(t, "help", true, "--json")
	expectJSON(t, "help", true, "driver", "--json")
	expectJSON(t, "sandboxctl", false, "frobnicate", "--json")
	expectJSON(t, "help", false, "help", "frobnicate", "--json")
}

func expectJSON(t *testing.T, kind string, ok bool, args ...string) {
	t.Helper()
	stdout, stderr, _ := execute(t, args...)
	var header struct {
		Kind string
		OK   bool
	}
	if err := json.Unmarshal([]byte(stdout), &header); err != nil {
		t.Errorf("%q: stdout is %q, stderr is %q: %v", args, stdout, stderr, err)
		return
	}
	if header.Kind != kind || header.OK != ok {
		t.Errorf("%q: kind %q, ok %v; want %q, %v", args, header.Kind, header.OK, kind, ok)
	}
	if strings.Count(stdout, "\n") != 1 {
		t.Errorf("%q: stdout is not one line: %q", args, stdout)
	}
	if err := validate([]byte(stdout)); err != nil {
		t.Errorf("%q: %v", args, err)
	}
}

// TestValidationFinds shows that the validation can fail.
func TestValidationFinds(t *testing.T) {
	good := `{"schema":"sandboxctl/v1","kind":"renew","ok":true,"name":"x","id":"i","driver":"d","state":"s","labels":{},"mine":true,"created_at":"2026-01-02T03:04:05Z","expired":false}`
	if err := validate([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string][2]string{
		"a missing field":       {`"mine":true,`, ``},
		"a field of other type": {`"mine":true`, `"mine":1`},
		"null for a list":       {`"labels":{}`, `"labels":null`},
		"a time out of UTC":     {`05Z`, `05+01:00`},
		"a field nobody knows":  {`"mine"`, `"mime":1,"mine"`},
		"a failure without why": {`"ok":true`, `"ok":false`},
		"another schema":        {`sandboxctl/v1`, `sandboxctl/v2`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if err := validate([]byte(bad)); err == nil {
			t.Errorf("%s passes: %s", what, bad)
		}
	}
}
