//go:build !linux

// Command sandboxctl-driver-local says, on systems without gVisor, what to use instead.
package main

import (
	"github.com/sandboxctl/sandboxctl/drivers/local"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func main() { plugin.Serve(local.New()) }
