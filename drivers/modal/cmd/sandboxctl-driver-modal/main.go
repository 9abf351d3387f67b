// Command sandboxctl-driver-modal is sandboxctl's driver for Modal.
package main

import (
	"github.com/sandboxctl/sandboxctl/drivers/modal"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func main() { plugin.Serve(modal.New()) }
