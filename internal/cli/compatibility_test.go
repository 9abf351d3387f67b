package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxctl/sandboxctl/docs/schema"
)

// TestReleasedFieldsStay compares the schemas with those of the last release, which
// docs/schema/README.md says how to replace.
func TestReleasedFieldsStay(t *testing.T) {
	released, err := filepath.Glob("testdata/released/*.json")
	if err != nil || len(released) == 0 {
		t.Fatalf("there are no released schemas (%v)", err)
	}
	for _, path := range released {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var old jsonschema.Schema
		if err := json.Unmarshal(data, &old); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var kind string
		for _, known := range schema.Kinds() {
			if schema.FileName(known) == filepath.Base(path) {
				kind = known
			}
		}
		if kind == "" {
			t.Errorf("%s was released, and is gone", filepath.Base(path))
			continue
		}
		now, err := readSchema(kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, broken := range breaks(&old, now, kind) {
			t.Error(broken)
		}
	}
}

// breaks lists what a program written for the old schema can no longer rely on.
func breaks(old, now *jsonschema.Schema, path string) []string {
	if now == nil {
		return []string{path + " is gone"}
	}
	var found []string
	if old.Type != now.Type {
		found = append(found, fmt.Sprintf("%s was %q and is %q", path, old.Type, now.Type))
	}
	for _, name := range old.Required {
		if !slices.Contains(now.Required, name) {
			found = append(found, fmt.Sprintf("%s.%s was always there and may be absent", path, name))
		}
	}
	for name, property := range old.Properties {
		found = append(found, breaks(property, now.Properties[name], path+"."+name)...)
	}
	if old.Items != nil {
		found = append(found, breaks(old.Items, now.Items, path+"[]")...)
	}
	if old.AdditionalProperties != nil {
		found = append(found, breaks(old.AdditionalProperties, now.AdditionalProperties, path+".*")...)
	}
	if old.Then != nil && now.Then != nil {
		found = append(found, breaks(old.Then, now.Then, path+" that succeeded")...)
	}
	return found
}

// TestBreaksAreFound shows that the comparison can fail.
func TestBreaksAreFound(t *testing.T) {
	text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
	old := &jsonschema.Schema{
		Type: "object", Required: []string{"name"},
		Properties: map[string]*jsonschema.Schema{"name": text(), "rows": {Type: "array", Items: text()}},
		Then:       &jsonschema.Schema{Required: []string{"rows"}},
	}
	more := old.CloneSchemas()
	more.Properties["added"] = text()
	if found := breaks(old, more, "kind"); len(found) != 0 {
		t.Errorf("an added field is no break: %q", found)
	}
	for what, change := range map[string]func(*jsonschema.Schema){
		"a removed field":   func(s *jsonschema.Schema) { delete(s.Properties, "rows") },
		"a retyped field":   func(s *jsonschema.Schema) { s.Properties["name"].Type = "integer" },
		"a retyped entry":   func(s *jsonschema.Schema) { s.Properties["rows"].Items.Type = "integer" },
		"no longer certain": func(s *jsonschema.Schema) { s.Required = nil },
		"not on success":    func(s *jsonschema.Schema) { s.Then.Required = nil },
	} {
		changed := old.CloneSchemas()
		change(changed)
		if found := breaks(old, changed, "kind"); len(found) != 1 {
			t.Errorf("%s: found %q, want one break", what, found)
		}
	}
}
