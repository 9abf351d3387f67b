package schemagen_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/internal/cli/output"
	"github.com/sandboxctl/sandboxctl/internal/cli/schemagen"
)

type header struct {
	Schema string `json:"schema"`
	Kind   string `json:"kind"`
	OK     bool   `json:"ok"`
}

// rows is a result with a field of each sort.
type rows struct {
	header
	Count   int               `json:"count"`
	Names   []string          `json:"names"`
	Labels  map[string]string `json:"labels"`
	Maybe   *float64          `json:"maybe,omitempty"`
	At      time.Time         `json:"at"`
	Details json.RawMessage   `json:"details,omitempty"`
	Hidden  error             `json:"-"`
}

func generator() *schemagen.Generator {
	return schemagen.New("../../..", "github.com/sandboxctl/sandboxctl")
}

func TestKind(t *testing.T) {
	described, err := generator().Kind("rows", []reflect.Type{reflect.TypeFor[rows]()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(described.Properties)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"at":{"type":"string","pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$","format":"date-time"},` +
		`"count":{"type":"integer"},"details":{"description":"Any JSON value."},"kind":{"type":"string","const":"rows"},` +
		`"labels":{"type":"object","additionalProperties":{"type":"string"}},"maybe":{"type":"number"},` +
		`"names":{"type":"array","items":{"type":"string"}},"ok":{"type":"boolean"},"schema":{"type":"string","const":"sandboxctl/v1"}}`
	if string(got) != want {
		t.Errorf("the properties are\n%s, want\n%s", got, want)
	}
	if certain := strings.Join(described.Then.Required, " "); certain != "count names labels at" {
		t.Errorf("certain on success: %s", certain)
	}
}

// TestComments looks for a comment in the sources of package output.
func TestComments(t *testing.T) {
	described, err := generator().Kind("x", []reflect.Type{reflect.TypeFor[struct {
		header
		Failure output.Error `json:"failure"`
	}]()})
	if err != nil {
		t.Fatal(err)
	}
	hint := described.Properties["failure"].Properties["hint"]
	if hint == nil || hint.Description != "hint says what to do." {
		t.Errorf("the hint is described as %+v", hint)
	}
}

func TestWhatJSONCannotPromise(t *testing.T) {
	for what, result := range map[string]reflect.Type{
		"a duration without a unit": reflect.TypeFor[struct {
			header
			Took time.Duration `json:"took"`
		}](),
		"a field without a JSON name": reflect.TypeFor[struct {
			header
			Name string
		}](),
		"an interface": reflect.TypeFor[struct {
			header
			Any any `json:"any"`
		}](),
	} {
		if _, err := generator().Kind("x", []reflect.Type{result}); err == nil {
			t.Errorf("%s has a schema", what)
		}
	}
}
