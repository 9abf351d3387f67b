// Command sandboxctl-driver-opensandbox is the driver for OpenSandbox servers.
package main

import (
	"github.com/sandboxctl/sandboxctl/drivers/opensandbox"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func main() { plugin.Serve(opensandbox.New()) }
