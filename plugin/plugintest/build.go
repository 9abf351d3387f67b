// Package plugintest helps the tests of drivers and of what starts them.
package plugintest

import (
	"fmt"
	"os"
	"os/exec"
)

// Build builds programs, named as for the go command, into a directory, the way they are
// released: without cgo, symbols and the race detector, for which a program would sleep at
// each of its ends.
func Build(dir string, programs ...string) error {
	build := exec.Command("go", append([]string{"build", "-ldflags=-s -w", "-o", dir + string(os.PathSeparator)}, programs...)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %q: %w\n%s", programs, err, output)
	}
	return nil
}
