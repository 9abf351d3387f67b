// Command sandboxctl-driver-local is the driver for gVisor sandboxes on this machine.
// One file is four programs, told apart by the name they are started under: the
// driver, gVisor's runsc, the helper inside sandboxes, and the keeper of one sandbox.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxctl/sandboxctl/drivers/local"
	"github.com/sandboxctl/sandboxctl/drivers/local/guest"
	"github.com/sandboxctl/sandboxctl/drivers/local/runsc"
	"github.com/sandboxctl/sandboxctl/plugin"
)

func main() {
	switch name := filepath.Base(os.Args[0]); {
	// What runsc starts to unmount /proc behind the sandbox goes by no other name.
	case strings.HasPrefix(name, runsc.Name), os.Args[0] == "/proc/self/exe":
		runsc.Main()
	case os.Args[0] == guest.Path:
		guest.Main()
	case os.Args[0] == local.KeeperName && len(os.Args) == 2:
		os.Exit(local.Keep(os.Args[1]))
	case dynamic:
		fmt.Fprintln(os.Stderr, "This driver has to be built with CGO_ENABLED=0, as `make build` does.")
		os.Exit(1)
	default:
		plugin.Serve(local.New())
	}
}
