// Command sandboxctl-driver-sbx is sandboxctl's driver for Docker Sandboxes.
package main

import (
	"github.com/sandboxctl/sandboxctl/drivers/sbx"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func main() {
	plugin.Serve(sbx.New())
}
