// Package schemagen derives JSON Schemas from the Go types of sandboxctl's results, with
// their doc comments as descriptions. It runs when the schemas are generated, never in
// sandboxctl itself.
package schemagen

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

const draft = "https://json-schema.org/draft/2020-12/schema"

// utcTime is the pattern of every time: RFC 3339 and UTC, so that strings sort as times.
const utcTime = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$`

// Generator makes schemas of the types of one module.
type Generator struct {
	comments *comments
}

// New returns a generator that finds comments in the sources of a module whose folder
// and path are given.
func New(root, module string) *Generator {
	return &Generator{comments: newComments(root, module)}
}

// Kind returns the schema of a command's result. A command may have several, of which
// one answer holds one. A failed command need not say more than why.
func (g *Generator) Kind(kind string, results []reflect.Type) (*jsonschema.Schema, error) {
	whole := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	var alternatives []*jsonschema.Schema
	for _, result := range results {
		schema, err := g.schema(result)
		if err != nil {
			return nil, fmt.Errorf("the result of %q: %w", kind, err)
		}
		for _, name := range schema.PropertyOrder {
			if _, known := whole.Properties[name]; !known {
				whole.PropertyOrder = append(whole.PropertyOrder, name)
				whole.Properties[name] = schema.Properties[name]
			}
		}
		alternatives = append(alternatives, &jsonschema.Schema{Required: beyondHeader(schema.Required)})
	}
	g.header(whole, kind)
	whole.If = &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"ok": {Const: jsonschema.Ptr[any](true)}}}
	whole.Then = &jsonschema.Schema{AnyOf: alternatives}
	if len(alternatives) == 1 {
		whole.Then = alternatives[0]
	}
	whole.Else = &jsonschema.Schema{Required: []string{"error"}}
	return whole, nil
}

// Failure returns the schema of any command's failure. The header type is what a
// failure without a result consists of.
func (g *Generator) Failure(header reflect.Type) (*jsonschema.Schema, error) {
	schema, err := g.schema(header)
	if err != nil {
		return nil, err
	}
	g.header(schema, "")
	schema.Properties["ok"].Const = jsonschema.Ptr[any](false)
	schema.Required = append(schema.Required, "error")
	return schema, nil
}

func (g *Generator) header(schema *jsonschema.Schema, kind string) {
	schema.Schema = draft
	schema.Title = "sandboxctl " + kind
	schema.Properties["schema"].Const = jsonschema.Ptr[any]("sandboxctl/v1")
	schema.Required = slices.Clone(headerFields)
	if kind == "" {
		schema.Title = "a failure of sandboxctl"
		return
	}
	schema.Properties["kind"].Const = jsonschema.Ptr[any](kind)
}

var headerFields = []string{"schema", "kind", "ok"}

func beyondHeader(required []string) []string {
	return slices.DeleteFunc(slices.Clone(required), func(name string) bool { return slices.Contains(headerFields, name) })
}

// schema describes a type as encoding/json writes it, under the contract's rules:
// what is absent is left out and never null, and arrays are never null.
func (g *Generator) schema(t reflect.Type) (*jsonschema.Schema, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time", Pattern: utcTime}, nil
	case reflect.TypeFor[json.RawMessage]():
		return &jsonschema.Schema{Description: "Any JSON value."}, nil
	case reflect.TypeFor[time.Duration]():
		return nil, fmt.Errorf("a duration has to be written in seconds or milliseconds, with a name that says which")
	}
	switch t.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}, nil
	case reflect.String:
		return &jsonschema.Schema{Type: "string"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &jsonschema.Schema{Type: "integer"}, nil
	case reflect.Float32, reflect.Float64:
		return &jsonschema.Schema{Type: "number"}, nil
	case reflect.Pointer:
		return g.schema(t.Elem())
	case reflect.Slice:
		items, err := g.schema(t.Elem())
		return &jsonschema.Schema{Type: "array", Items: items}, err
	case reflect.Map:
		values, err := g.schema(t.Elem())
		return &jsonschema.Schema{Type: "object", AdditionalProperties: values}, err
	case reflect.Struct:
		return g.object(t)
	}
	return nil, fmt.Errorf("%s has no JSON that a schema could describe", t)
}

func (g *Generator) object(t reflect.Type) (*jsonschema.Schema, error) {
	schema := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, field := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			return nil, fmt.Errorf("%s.%s has no name for JSON", t, field.Name)
		}
		property, err := g.schema(field.Type)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, field.Name, err)
		}
		if comment := g.comments.field(declaring(t, field), field.Name); comment != "" {
			property.Description = asJSON(comment, field.Name, name)
		}
		schema.Properties[name] = property
		schema.PropertyOrder = append(schema.PropertyOrder, name)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			schema.Required = append(schema.Required, name)
		}
	}
	return schema, nil
}

// asJSON lets a comment that begins with the Go field's name begin with the JSON name.
func asJSON(comment, goName, name string) string {
	if rest, found := strings.CutPrefix(comment, goName+" "); found {
		return name + " " + rest
	}
	return comment
}

// declaring returns the struct that a promoted field was declared in.
func declaring(t reflect.Type, field reflect.StructField) reflect.Type {
	if len(field.Index) == 1 {
		return t
	}
	return t.FieldByIndex(field.Index[:len(field.Index)-1]).Type
}
