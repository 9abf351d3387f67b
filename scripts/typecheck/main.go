// Typecheck checks all packages here, with their tests, for the systems that are named as
// GOOS/GOARCH. It reads everything that they import as source, which takes seconds where
// compiling it for each system takes minutes.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, system := range os.Args[1:] {
		fmt.Println("check the types for", system)
		ok, err := check(system)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		failed = failed || !ok
	}
	if failed {
		os.Exit(1)
	}
}

// check prints what is wrong, and says whether nothing is.
func check(system string) (ok bool, err error) {
	goos, goarch, _ := strings.Cut(system, "/")
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
		Env:   append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
		Tests: true,
	}, "./...")
	if err != nil {
		return false, fmt.Errorf("typecheck for %s: %w", system, err)
	}
	return packages.PrintErrors(found) == 0, nil
}
