// Command sbx is the test double of Docker's sbx program.
package main

import (
	"os"

	"github.com/sandboxctl/sandboxctl/drivers/sbx/internal/sbxdouble"
)

func main() {
	os.Exit(sbxdouble.Main(os.Args[1:]))
}
