// Package schema holds the JSON Schemas of what sandboxctl writes with --json, one file
// per kind of result and error.json for the failure of any. They are generated from the
// Go types; see `make generate`.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.json
var files embed.FS

// Failure is the name under which Read has the schema of any command's failure.
const Failure = "error"

// FileName is the file of a kind: "driver ls" is in driver-ls.json.
func FileName(kind string) string { return strings.ReplaceAll(kind, " ", "-") + ".json" }

// Kinds lists the kinds that have a schema, Failure among them, in alphabetical order.
func Kinds() []string {
	names, _ := fs.Glob(files, "*.json")
	kinds := make([]string, 0, len(names))
	for _, name := range names {
		kinds = append(kinds, strings.ReplaceAll(strings.TrimSuffix(name, ".json"), "-", " "))
	}
	return kinds
}

// Read returns a kind's schema.
func Read(kind string) ([]byte, error) {
	data, err := files.ReadFile(FileName(kind))
	if err != nil {
		return nil, fmt.Errorf("there is no result of the kind %q; there are: %s", kind, strings.Join(Kinds(), ", "))
	}
	return data, nil
}
