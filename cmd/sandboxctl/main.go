// Sandboxctl runs code that is not trusted in sandboxes, on any backend.
package main

import (
	"context"
	"os"

	"github.com/sandboxctl/sandboxctl/internal/cli"
)

// Set by the linker.
var (
	version = "0.0.0-dev"
	commit  string
	date    string
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := cli.WithSignals(context.Background(), os.Exit)
	defer stop()
	app := cli.NewApp(cli.Build{Version: version, Commit: commit, Date: date})
	return app.Execute(ctx, os.Args[1:])
}
