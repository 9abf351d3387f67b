package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxctl/sandboxctl/docs/schema"
)

// fieldFlag asks for one value of a result instead of the whole object.
const fieldFlag = "field"

// selectField makes the printer write one value only when --field was given. A field
// that the command's result cannot have is refused before anything is done.
func (a *App) selectField(command *cobra.Command) error {
	path := command.Root().PersistentFlags().Lookup(fieldFlag).Value.String()
	if path == "" {
		return nil
	}
	data, err := schema.Read(kindOf(command))
	if err != nil {
		return usagef("--field %s: %w", path, err)
	}
	var result fieldSchema
	if err := json.Unmarshal(data, &result); err != nil {
		return err
	}
	if err := result.check(strings.Split(path, ".")); err != nil {
		return usagef("--field %s: %w", path, err)
	}
	a.printer.Select(path)
	return nil
}

// fieldSchema is what a path needs of a JSON Schema.
type fieldSchema struct {
	Type                 string                  `json:"type"`
	Properties           map[string]*fieldSchema `json:"properties"`
	Items                *fieldSchema            `json:"items"`
	AdditionalProperties *fieldSchema            `json:"additionalProperties"`
}

// check follows a path as far as the schema knows what comes.
func (s *fieldSchema) check(path []string) error {
	if len(path) == 0 {
		return nil
	}
	name := path[0]
	switch {
	case s.Properties != nil:
		inner := s.Properties[name]
		if inner == nil {
			return fmt.Errorf("there is no %q; take one of %s", name, strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
		}
		return inner.check(path[1:])
	case s.Items != nil:
		if _, err := strconv.ParseUint(name, 10, 31); err != nil {
			return fmt.Errorf("%q is no place in a list; the first is 0", name)
		}
		return s.Items.check(path[1:])
	case s.AdditionalProperties != nil, s.Type == "":
		// The keys of labels, and the values that are a driver's own, are not ours to
		// know; a key may hold dots.
		return nil
	}
	return fmt.Errorf("a %s holds nothing called %q", s.Type, name)
}
