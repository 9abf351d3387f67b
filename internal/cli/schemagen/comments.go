package schemagen

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
)

// comments finds the doc comments of struct fields in a module's sources.
type comments struct {
	root, module string
	// packages maps an import path to "Type.Field" to its comment.
	packages map[string]map[string]string
}

func newComments(root, module string) *comments {
	return &comments{root: root, module: module, packages: map[string]map[string]string{}}
}

// field returns a field's comment as one line, or "" when there is none.
func (c *comments) field(t reflect.Type, field string) string {
	path := t.PkgPath()
	if _, read := c.packages[path]; !read {
		c.packages[path] = c.read(path)
	}
	return c.packages[path][t.Name()+"."+field]
}

func (c *comments) read(path string) map[string]string {
	found := map[string]string{}
	dir, ours := strings.CutPrefix(path, c.module)
	if !ours {
		return found
	}
	files, _ := filepath.Glob(filepath.Join(c.root, filepath.FromSlash(dir), "*.go"))
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, isType := node.(*ast.TypeSpec)
			if !isType {
				return true
			}
			if structure, ok := spec.Type.(*ast.StructType); ok {
				collect(found, spec.Name.Name, structure)
			}
			return true
		})
	}
	return found
}

func collect(found map[string]string, typeName string, structure *ast.StructType) {
	for _, field := range structure.Fields.List {
		text := strings.Join(strings.Fields(field.Doc.Text()), " ")
		for _, name := range field.Names {
			found[typeName+"."+name.Name] = text
		}
	}
}
