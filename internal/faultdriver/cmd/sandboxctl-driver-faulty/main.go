// Command sandboxctl-driver-faulty is a driver that misbehaves on purpose, for tests.
package main

import (
	"fmt"
	"os"

	"github.com/sandboxctl/sandboxctl/internal/faultdriver"
)

func main() {
	if err := faultdriver.Serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
